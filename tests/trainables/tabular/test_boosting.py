"""XGBoost and LightGBM against the libraries themselves: models, metrics, resume, exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import lightgbm
import numpy as np
import onnx
import pyarrow as pa
import pytest
import xgboost
from pyarrow import parquet

from results.export.exportable import ModelSource
from results.export.folder import ModelCard, export_model
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.data.tables.table import prepare
from trainables.job import Answer
from trainables.registry import resolve
from trainables.tabular.boosting import BoostingProgress
from trainables.tabular.config import TabularConfig
from trainables.tabular.xgboost import XGBoostConfig

LIBRARIES = ("xgboost", "lightgbm")
FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}
BINARY = {"source": "breast_cancer"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A table of three classes with categories, missing values and weights."""
    rng, rows = np.random.default_rng(0), 600
    size, town = rng.normal(size=(rows, 3)), rng.choice(["a", "b", "c", "d"], rows)
    score = size[:, 0] + size[:, 1] * size[:, 2] + (town == "c") + rng.normal(size=rows) / 4
    file = tmp_path_factory.mktemp("mixed") / "rows.parquet"
    columns = {f"size{i}": np.where(rng.random(rows) < 0.1, np.nan, size[:, i]) for i in range(3)}
    towns = pa.array(town, mask=rng.random(rows) < 0.1)
    kinds = np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.7])]
    table = {**columns, "town": towns, "kind": kinds, "weight": rng.random(rows) + 0.5}
    parquet.write_table(pa.table(table), file)
    return {"path": str(file), "target": "kind", "weight": "weight"}


def test_a_round_without_a_value_replaces_no_best_one() -> None:
    progress, best = BoostingProgress(), []
    for progress.round, value in enumerate([np.nan, 2.0, np.nan, 1.0, 3.0], 1):
        best.append(progress.note(value, "rmse"))
    assert best == [True, True, False, True, False]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("data", [BINARY, {"source": "diabetes"}])
def test_model_is_that_of_the_library_alone(
    library: str, data: dict[str, str], tmp_path: Path
) -> None:
    config = {"data": data, "rounds": 25, "report_every": 5}
    reports = run_trial(tmp_path / "t", library, config, cache=tmp_path / "cache").reports
    trainable = resolve(library)
    checked: Any = trainable.Config.model_validate(config)
    table = prepare(checked.data, tmp_path / "cache")
    (x, y, _), (x_sel, y_sel, _) = (table.rows(s) for s in (Split.TRAIN, Split.SELECTION))
    binary = data is BINARY
    if library == "xgboost":
        task = {"objective": "binary:logistic" if binary else "reg:squarederror"}
        task |= {"eval_metric": ["logloss", "auc"] if binary else ["rmse", "mae"], "nthread": 1}
        selection, found = xgboost.DMatrix(x_sel, y_sel), {}
        evals = [(selection, "own")]
        alone: Any = xgboost.train(
            task, xgboost.DMatrix(x, y), 25, evals=evals, evals_result=found, verbose_eval=False
        )
        own, predicted = {k: v[-1] for k, v in found["own"].items()}, alone.predict(selection)
    else:
        task = {"objective": "binary" if binary else "regression", "num_threads": 1}
        task |= {"verbosity": -1, "deterministic": True, "force_row_wise": True, "metric": "None"}
        names = ["binary_logloss", "auc"] if binary else ["rmse", "l1"]
        train = lightgbm.Dataset(np.asarray(x), np.asarray(y))
        own = {}
        alone = lightgbm.train(
            {**task, "metric": names},
            train,
            25,
            valid_sets=[train.create_valid(np.asarray(x_sel), np.asarray(y_sel))],
            valid_names=["own"],
            callbacks=[lightgbm.record_evaluation(kept := {})],
        )
        renamed = {"binary_logloss": "logloss", "l1": "mae"}
        own = {renamed.get(k, k): v[-1] for k, v in kept["own"].items()}
        predicted = alone.predict(np.asarray(x_sel))
    folder = newest_checkpoint(tmp_path / "t").folder
    ours = trainable.exportable(checked, folder, tmp_path / "cache")
    model: Any = ours.own_format
    found_here = model.predict(x_sel)
    np.testing.assert_array_equal(found_here[:, 1] if binary else found_here, predicted)
    assert {k: reports[-1].metrics[k] for k in own} == pytest.approx(own, rel=1e-5)


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "xgboost": ("xgboost", {"subsample": 0.7, "colsample_bynode": 0.7, "max_depth": 3}),
    "dart": ("xgboost", {"booster": "dart", "params": {"rate_drop": 0.3}}),
    "approx": ("xgboost", {"tree_method": "approx", "subsample": 0.7}),
    "forest": ("xgboost", {"params": {"num_parallel_tree": 2}, "subsample": 0.6}),
    "lightgbm": ("lightgbm", {"subsample": 0.7, "colsample_bytree": 0.6, "extra_trees": True}),
    "columns": ("lightgbm", {"colsample_bynode": 0.5, "num_leaves": 7}),
    "plain": ("lightgbm", {}),
    "goss": ("lightgbm", {"data_sample_strategy": "goss", "learning_rate": 0.5}),
    "dart, LightGBM": ("lightgbm", {"boosting": "dart"}),
    "rare draws": ("lightgbm", {"subsample": 0.5, "subsample_freq": 3}),
    "rf": ("lightgbm", {"boosting": "rf", "subsample": 0.5}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_resumed_trial_equals_the_uninterrupted_one(
    name: str, mixed: dict[str, Any], tmp_path: Path
) -> None:
    library, changes = SETTINGS[name]
    config = {"data": mixed, "rounds": 12, "report_every": 3, "early_stopping_rounds": 9, **changes}
    options: dict[str, Any] = {"cache": tmp_path / "cache"}
    whole = run_trial(tmp_path / "whole", library, config, **options)
    cut = RecordingChannel({6: Answer.STOP})
    run_trial(tmp_path / "cut", library, config, channel=cut, **options)
    rest = run_trial(tmp_path / "cut", library, config, attempt=2, **options)
    assert {**cut.curve, **rest.curve} == whole.curve
    one, other = (newest_checkpoint(tmp_path / n).manifest.files for n in ("whole", "cut"))
    assert one == other


@pytest.mark.parametrize("library", LIBRARIES)
def test_early_stopping_ends_the_trial_and_keeps_the_best_round(
    library: str, tmp_path: Path
) -> None:
    config = {"data": BINARY, "rounds": 400, "learning_rate": 0.5, "early_stopping_rounds": 12}
    channel = run_trial(tmp_path / "t", library, config, cache=tmp_path / "cache")
    last = channel.reports[-1]
    assert last.step == last.metrics["best_round"] + 12
    losses = [report.metrics["logloss"] for report in channel.reports]
    assert losses == sorted(losses, reverse=True)
    trainable = resolve(library)
    folder = newest_checkpoint(tmp_path / "t").folder
    checked = trainable.Config.model_validate(config)
    scores = trainable.evaluate(checked, folder, Split.SELECTION, tmp_path / "cache")
    assert {**scores, "best_round": last.metrics["best_round"]} == last.metrics


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("form", ["booster", "onnx"])
def test_export_predicts_the_same_with_categories_and_missing_values(
    library: str, form: str, mixed: dict[str, Any], tmp_path: Path
) -> None:
    config = {"data": mixed, "rounds": 20, "early_stopping_rounds": 5}
    run_trial(tmp_path / "t", library, config, cache=tmp_path / "cache")
    trainable, folder = resolve(library), newest_checkpoint(tmp_path / "t").folder
    checked = trainable.Config.model_validate(config)
    source = ModelSource(
        folder, lambda: trainable.exportable(checked, folder, tmp_path / "cache"), lambda _: None
    )
    assert source.exportable.class_names == ("high", "low", "middle")
    (check,) = export_model(
        folder, tmp_path / "out", form, source, ModelCard("s", "logloss", 1.0, ("t",))
    )
    assert check.passed
    assert check.cases[0].error < 1e-5
    made = tmp_path / "out" / ("model.onnx" if form == "onnx" else FILES[library])
    if form == "onnx":
        (table,) = (found.value for found in onnx.load(made).metadata_props)
    else:
        table = made.with_name("table.json").read_text()
    assert json.loads(table) == json.loads((folder / "table.json").read_text())


@pytest.mark.parametrize(
    ("library", "params", "message"),
    [
        ("xgboost", {"max_dept": 3}, "did you mean 'max_depth'"),
        ("xgboost", {"eta": 0.1}, "hyperparameter learning_rate"),
        ("xgboost", {"rate_drop": 0.1}, "no 'rate_drop'"),  # of dart
        ("xgboost", {"tweedie_variance_power": 1.1}, "no 'tweedie_variance_power'"),
        ("xgboost", {"max_cat_threshold": "x"}, "max_cat_threshold"),
        ("xgboost", {"seed": 1}, "no 'seed'"),
        ("lightgbm", {"min_data_in_leaf": 3}, "hyperparameter min_child_samples"),
        ("lightgbm", {"cat_smoth": 3}, "did you mean 'cat_smooth'"),
        ("lightgbm", {"path_smooth": "x"}, "path_smooth"),
        ("lightgbm", {"num_threads": 2}, "no 'num_threads'"),
    ],
)
def test_parameters_that_the_library_would_ignore_are_refused(
    library: str, params: dict[str, Any], message: str
) -> None:
    config: Any = resolve(library).Config.model_validate({"data": BINARY, "params": params})
    assert any(message in text for _, text in config.missing_files())


@pytest.mark.parametrize(
    ("library", "params"),
    [("xgboost", {"scale_pos_weight": 2.0}), ("lightgbm", {"scale_pos_weight": 2.0})],
)
def test_other_parameters_of_the_library_are_passed_on(
    library: str, params: dict[str, Any], tmp_path: Path
) -> None:
    plain = {"data": BINARY, "rounds": 3, "params": {}}
    for name, config in (("plain", plain), ("weighted", {**plain, "params": params})):
        assert not resolve(library).Config.model_validate(config).missing_files()
        run_trial(tmp_path / name, library, config, cache=tmp_path / "cache")
    one, other = (newest_checkpoint(tmp_path / n).manifest.files for n in ("plain", "weighted"))
    assert one[FILES[library]] != other[FILES[library]]


def test_missing_library_is_one_line_with_what_installs_it() -> None:
    class Other(XGBoostConfig):
        library: ClassVar[str] = "no_such_library"

    config: TabularConfig = Other.model_validate({"data": BINARY})
    ((path, problem),) = config.missing_files()
    assert path == ()
    assert "pip install 'tune-platform[no_such_library]'" in problem


def test_more_workers_than_one_are_refused() -> None:
    config: TabularConfig = XGBoostConfig.model_validate({"data": BINARY})
    assert config.validate_workers([1]) is None
    found = config.validate_workers([2])
    assert found is not None
    assert "cpus_per_worker" in found[1]
