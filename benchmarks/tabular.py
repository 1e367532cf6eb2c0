"""`trainable: xgboost` beside Optuna alone with its integration: seconds and final score.

    python -m benchmarks.tabular [--rows 20000] [--trials 40] [--seeds 3]

Both get the same table (made by scikit-learn), splits, space, rounds, number of trials and
processors, TPE, successive halving, and early stopping by the selection split. Optuna's trials are
threads of one process. Scores are those of the best trial's model on the test split, which no
search sees.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from benchmarks.ours import run_file
from benchmarks.process import run
from trainables.base import Split
from trainables.data.tables.config import TableConfig
from trainables.data.tables.table import prepare
from trainables.tabular.boosting import by_class, measure

ROUNDS, GRACE, FACTOR, PATIENCE, STARTUP = 270, 30, 3, 50, 10
SPACE: dict[str, tuple[str, list[float]]] = {
    "learning_rate": ("loguniform", [0.01, 0.5]),
    "max_depth": ("randint", [2, 10]),
    "min_child_weight": ("loguniform", [0.1, 20]),
    "subsample": ("uniform", [0.5, 1.0]),
    "colsample_bytree": ("uniform", [0.3, 1.0]),
    "reg_lambda": ("loguniform", [1e-3, 10]),
}


def write_table(file: Path, rows: int) -> None:
    from sklearn.datasets import make_classification

    x, y = make_classification(
        rows, 20, n_informative=8, n_redundant=4, flip_y=0.05, class_sep=0.7, random_state=0
    )
    columns = {f"x{i}": column for i, column in enumerate(x.T)}
    parquet.write_table(pa.table({**columns, "target": y.astype(str)}), file)


def by_optuna(folder: Path, trials: int, seed: int) -> None:
    """A study over `xgboost.train`; writes the score of its best model."""
    import optuna
    import xgboost
    from optuna_integration import XGBoostPruningCallback

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    table = prepare(TableConfig(path=[str(folder / "rows.parquet")]), folder / "cache")
    train, selection, test = (
        xgboost.DMatrix(*table.rows(split)[:2])
        for split in (Split.TRAIN, Split.SELECTION, Split.TEST)
    )
    models: dict[int, Any] = {}

    def objective(trial: optuna.Trial) -> float:
        params: dict[str, Any] = {"objective": "binary:logistic", "nthread": 1, "seed": seed}
        params["eval_metric"] = "logloss"
        for name, (kind, (low, high)) in SPACE.items():
            if kind == "randint":
                params[name] = trial.suggest_int(name, int(low), int(high) - 1)
            else:
                params[name] = trial.suggest_float(name, low, high, log=kind == "loguniform")
        models[trial.number] = model = xgboost.train(
            params,
            train,
            ROUNDS,
            evals=[(selection, "selection")],
            early_stopping_rounds=PATIENCE,
            verbose_eval=False,
            callbacks=[XGBoostPruningCallback(trial, "selection-logloss")],
        )
        return model.best_score

    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP),
        pruner=optuna.pruners.SuccessiveHalvingPruner(GRACE, FACTOR),
    )
    study.optimize(objective, n_trials=trials, n_jobs=os.cpu_count() or 1)
    best = models[study.best_trial.number]
    predicted = by_class(best[: best.best_iteration + 1].predict(test), "binary")
    scores = measure(table.schema, predicted, table.rows(Split.TEST)[1])
    (folder / "optuna.json").write_text(json.dumps(scores))


def sweep(folder: Path, trials: int, seed: int, search: str) -> dict[str, Any]:
    options = {"startup_trials": STARTUP} if search == "tpe" else {}
    return {
        "name": search,
        "trainable": "xgboost",
        "metric": "logloss",
        "mode": "min",
        "space": {name: {kind: bounds} for name, (kind, bounds) in SPACE.items()},
        "fixed": {
            "data": {"path": str(folder / "rows.parquet")},
            "rounds": ROUNDS,
            "report_every": 10,
            "early_stopping_rounds": PATIENCE,
        },
        "search": {"name": search, **options},
        "scheduler": {
            "name": "asha",
            "grace_period": GRACE,
            "max_t": ROUNDS,
            "reduction_factor": FACTOR,
        },
        "budget": {"trials": trials},
        "resources": {"workers": 1, "cpus_per_worker": 1, "gpus_per_worker": 0},
        "tracking": {"name": "none"},
        "storage": str(folder),
        "seed": seed,
    }


def our_score(folder: Path, name: str) -> dict[str, float]:
    """The winner's metrics on the test split."""
    from results.analysis.selection import select_winner
    from results.checkpoints.commit import newest_intact
    from results.paths import Storage
    from results.records.spec_file import read_spec
    from trainables.registry import resolve

    paths, trainable = Storage(folder).sweep(name), resolve("xgboost")
    record = select_winner(paths, read_spec(paths)).line.record
    found = newest_intact(paths.trial(record.id))
    assert found is not None
    config = trainable.Config.model_validate(record.config)
    return trainable.evaluate(config, found.folder, Split.TEST, paths.storage.cache)


def compare(rows: int, trials: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_table(folder / "rows.parquet", rows)
        prepare(TableConfig(path=[str(folder / "rows.parquet")]), folder / "cache")
        alone = [sys.executable, "-m", "benchmarks.tabular", "--optuna", str(folder)]
        alone += ["--trials", str(trials), "--seed", str(seed)]
        env = {"OMP_NUM_THREADS": "1"}
        lines = [("Optuna alone", run(alone, folder / "log", 3600, env).wall_s)]
        scores = [json.loads((folder / "optuna.json").read_text())]
        for search in ("tpe", "auto"):
            command = run_file(sweep(folder, trials, seed, search), folder)
            lines.append((f"ours, {search}", run(command, folder / "log", 3600, env).wall_s))
            scores.append(our_score(folder, search))
    for (name, seconds), found in zip(lines, scores, strict=True):
        print(f"| {seed} | {name} | {seconds:.1f} | {found['logloss']:.4f} | {found['auc']:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("rows", 20_000), ("trials", 40), ("seeds", 3), ("seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--optuna", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.optuna:
        by_optuna(given.optuna, given.trials, given.seed)
        return
    print("| seed | contender | seconds | test logloss | test AUC |")
    print("| --- | --- | --- | --- | --- |")
    for seed in range(given.seeds):
        compare(given.rows, given.trials, seed)


if __name__ == "__main__":
    main()
