"""Every kind of stage on models that are trained in this process, without Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.records.pipeline import PipelinePaths, read_stages
from results.records.spec_file import read_spec
from results.records.trial import read_trials
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from search_spaces.pipeline.stages import ExportStage
from tests.tuning.pipelines import small
from tests.tuning.pipelines.small import FILE, drive
from tuning.pipelines.base import Surroundings, run_stage
from tuning.pipelines.running.spending import within

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own


def test_models_are_averaged_confirmed_and_evaluated(made: PipelinePaths) -> None:
    found = read_stages(made).stages
    assert all(record.done for record in found.values())
    assert made.sweep("pretrain").soup("averaged").is_dir()
    confirmed = json.loads(made.sweep("pretrain").confirmation.read_text())
    assert {one["trial"] for one in confirmed["trials"]} == {"t0000", "t0001"}
    scores = json.loads((made.stage("scores") / "scores.json").read_text())
    assert found["scores"].result == {"model": found["confirmed"].result["winner"], **scores}
    assert scores["eval_loss"] > 0


def test_an_export_stage_registers_the_model_in_mlflow(
    made: PipelinePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    stage = ExportStage(name="registered", kind="export", model="sft.winner", to=["mlflow"])
    results = {name: record.result for name, record in read_stages(made).stages.items()}
    around = Surroundings(load_pipeline(made.spec), made, results, None, drive, print)
    result = run_stage(stage, around)
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (version,) = client.search_model_versions("name='small'")
    assert result == {"model": results["sft"]["winner"], "mlflow": "models:/small/1"}
    assert version.tags["tune.model"] == results["sft"]["winner"]


def test_a_stage_begins_with_the_soup_and_takes_the_tied_value(made: PipelinePaths) -> None:
    for record in read_trials(made.sweep("sft")):
        assert Path(record.config["model_name_or_path"]).name == "averaged-hf"
        assert record.config["weight_decay"] == 0.3


def test_each_model_to_begin_with_brings_the_values_that_are_tied_to_it(
    made: PipelinePaths,
) -> None:
    rates = {r.id: r.config["learning_rate"] for r in read_trials(made.sweep("pretrain"))}
    spec = read_spec(made.sweep("later"))
    assert "model_name_or_path" in spec.domains()
    for record in read_trials(made.sweep("later")):
        origin = Path(record.params["model_name_or_path"]).name.removesuffix("-hf")
        assert record.config["learning_rate"] == rates[origin]


def test_a_stage_gets_what_the_others_left_of_the_whole_budget(
    made: PipelinePaths, tmp_path: Path
) -> None:
    def left(trials: int) -> int | None:
        file = small.write(tmp_path)
        file.write_text(FILE.replace("\nstages:", f"\nbudget: {{trials: {trials}}}\nstages:"))
        pipeline = load_pipeline(file)
        around = Surroundings(pipeline, made, {}, None, drive, print)
        return within(pipeline.sweeps["later"], around).spec.budget.trials

    assert [left(20), left(5)] == [2, 1]  # four trials of other stages have run
    with pytest.raises(UserError, match=r"is spent: 4 of 4 trials; raise budget\.trials"):
        left(4)
