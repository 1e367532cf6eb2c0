"""Write trials to a sweep folder, deliver them to MLflow, and read back what MLflow stores."""

import sqlite3
from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from results.records.trial import Attempt, Report, TrialRecord, TrialState, write_trial
from results.tracking import Delivery, Ending, SweepFacts, mlflow_tracker
from tests.reports import append_report

WAIT_S = 100.0


def uri_of(storage: Path) -> str:
    return f"sqlite:///{storage}/mlflow.db"


def trial(number: int, state: TrialState = TrialState.RUNNING, attempts: int = 1) -> TrialRecord:
    return TrialRecord(
        id=f"t{number:04d}",
        number=number,
        params={"optim.lr": 0.1 * number},
        config={"optim": {"lr": 0.1 * number, "betas": [0.9, 0.95]}, "note": "x" * 7000},
        seed=number,
        state=state,
        reason="stopped at rung 4" if state is TrialState.STOPPED else "",
        created=1e9,
        attempts=tuple(Attempt(number=n + 1, started=1e9, ended=1e9 + 60) for n in range(attempts)),
    )


def write(
    paths: SweepPaths, record: TrialRecord, *steps: int, attempt: int = 1, plus: float = 0.0
) -> None:
    """Write the trial's record, and append reports of these steps."""
    write_trial(paths.trial(record.id), record)
    for step in steps:
        metrics = {"eval/loss@2": step / 10 + plus}
        at = 1e9 + step + 9 * (attempt - 1)
        report = Report(step=step, metrics=metrics, attempt=attempt, time=at)
        append_report(paths.trial(record.id), report)


def open_tracker(paths: SweepPaths, uri: str, key: str) -> Delivery:
    facts = SweepFacts(key, "llm-1", {"tune.version": "1"}, {"trials": 3})
    return mlflow_tracker(paths, uri, paths.root / "artifacts", "llm", facts)


def deliver(paths: SweepPaths, uri: str, key: str, status: str = "FINISHED") -> dict[str, Any]:
    """Deliver a sweep whose session has ended; returns its runs."""
    assert open_tracker(paths, uri, key).close(Ending(status, {}), WAIT_S) is None
    return runs(uri, key)


def runs(uri: str, key: str) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    [experiment] = [e for e in client.search_experiments() if e.name == "llm"]
    found = client.search_runs([experiment.experiment_id], f"tags.`tune.sweep` = '{key}'")
    assert len({r.info.run_name for r in found}) == len(found)
    return {r.info.run_name: r for r in found}


def points(storage: Path, run: Any) -> list[tuple[int, float]]:
    """Every row of the run's metric, duplicates included."""
    with sqlite3.connect(storage / "mlflow.db") as db:
        query = "select step, value from metrics where run_uuid = ? order by step"
        return db.execute(query, (run.info.run_id,)).fetchall()
