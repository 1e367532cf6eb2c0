"""MLflow's view of a sweep, on a real SQLite store."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from results.background import Background
from results.records import Attempt, Report, TrialRecord, TrialState
from results.tracking import (
    MLflowTracker,
    Tracker,
    comparison_url,
    experiment_url,
    ui_command,
    ui_environment,
)
from search_spaces.errors import UserError

WAIT_S = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracking storage")


def uri_of(storage: Path) -> str:
    return f"sqlite:///{storage}/mlflow.db"


class Deaf:
    """A sink that does nothing."""

    def sweep_started(
        self, name: str, tags: Mapping[str, str], params: Mapping[str, object]
    ) -> None: ...

    def trial_started(self, record: TrialRecord) -> None: ...

    def reported(self, trial_id: str, reports: list[Report]) -> None: ...

    def trial_ended(self, record: TrialRecord) -> None: ...

    def sweep_ended(self, status: str, metrics: Mapping[str, float]) -> None: ...


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


def report(step: int, loss: float, attempt: int = 1) -> Report:
    return Report(step=step, metrics={"eval/loss@2": loss}, attempt=attempt, time=1e9 + step)


def open_tracker(storage: Path, key: str) -> MLflowTracker:
    tracker: Tracker = MLflowTracker(uri_of(storage), storage / "artifacts", "llm", key)
    tracker.sweep_started("llm-1", {"tune.version": "1"}, {"trials": 3})
    assert isinstance(tracker, MLflowTracker)
    return tracker


def runs(storage: Path, key: str) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri_of(storage))
    [experiment] = [e for e in client.search_experiments() if e.name == "llm"]
    found = client.search_runs([experiment.experiment_id], f"tags.`tune.sweep` = '{key}'")
    assert len({r.info.run_name for r in found}) == len(found)
    return {r.info.run_name: r for r in found}


def steps(storage: Path, run: Any) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    history = MlflowClient(uri_of(storage)).get_metric_history(run.info.run_id, "eval/loss_2")
    return [(m.step, m.value) for m in history]


def test_a_resumed_sweep_continues_its_runs(storage: Path) -> None:
    first = open_tracker(storage, "s/resumed")
    for number in range(3):
        first.trial_started(trial(number))
        for step in (1, 2):
            first.reported(f"t{number:04d}", report(step, step / 10))
    first.trial_ended(trial(0, TrialState.COMPLETED))
    first.trial_ended(trial(1, TrialState.STOPPED))
    first.sweep_ended("KILLED", {"best": 0.2})
    first.close(WAIT_S)
    assert first.problem is None
    before = runs(storage, "s/resumed")
    assert {n: r.info.status for n, r in before.items()} == {
        "llm-1": "KILLED",
        "t0000": "FINISHED",
        "t0001": "KILLED",
        "t0002": "KILLED",
    }

    second = open_tracker(storage, "s/resumed")
    second.trial_started(trial(2, attempts=2))
    for step in (1, 2, 3):  # the steps before the interruption are told again
        second.reported("t0002", report(step, step / 10, attempt=2))
    second.reported("t0002", report(3, 0.3, attempt=2))
    second.trial_ended(trial(2, TrialState.FAILED, attempts=2))
    second.sweep_ended("FINISHED", {"best": 0.3})
    second.close(WAIT_S)

    assert second.problem is None
    after = runs(storage, "s/resumed")
    assert {n: r.info.run_id for n, r in after.items()} == {
        n: r.info.run_id for n, r in before.items()
    }
    assert after["llm-1"].info.status == "FINISHED"
    assert after["t0002"].info.status == "FAILED"
    assert after["t0002"].data.tags["tune.attempt"] == "2"
    assert after["t0002"].data.tags["mlflow.parentRunId"] == after["llm-1"].info.run_id
    assert steps(storage, after["t0002"]) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_what_a_run_says_of_its_trial(storage: Path) -> None:
    tracker = open_tracker(storage, "s/says")
    tracker.trial_started(trial(2))
    tracker.trial_ended(trial(2, TrialState.STOPPED))
    tracker.close(WAIT_S)
    run = runs(storage, "s/says")["t0002"]
    assert run.info.start_time == 1_000_000_000_000
    assert run.info.end_time == 1_000_000_060_000
    assert run.data.tags["tune.seed"] == "2"
    assert run.data.tags["tune.reason"] == "stopped at rung 4"
    assert run.data.params["optim.lr"] == "0.2"
    assert run.data.params["optim.betas"] == "[0.9, 0.95]"
    assert len(run.data.params["note"]) == 6000


def test_a_killed_driver_leaves_no_run_behind(storage: Path) -> None:
    first = open_tracker(storage, "s/killed")
    first.trial_started(trial(0))
    first.trial_started(trial(1))
    first.close(WAIT_S)  # the driver is gone without a word: both runs say they run

    second = open_tracker(storage, "s/killed")
    second.trial_started(trial(0, attempts=2))
    second.trial_ended(trial(0, TrialState.COMPLETED, attempts=2))
    second.sweep_ended("KILLED", {})
    second.close(WAIT_S)
    found = runs(storage, "s/killed")
    assert found["t0000"].info.status == "FINISHED"
    assert found["t0001"].info.status == "KILLED"


def test_pages_and_command(storage: Path) -> None:
    tracker = open_tracker(storage, "s/pages")
    tracker.trial_started(trial(1))
    tracker.trial_started(trial(0))
    tracker.close(WAIT_S)
    found = runs(storage, "s/pages")
    url = comparison_url("http://127.0.0.1:5000/", uri_of(storage), "s/pages")
    page, query = url.split("?")
    chosen, experiments = (part.split("=")[1] for part in query.split("&"))
    assert page == "http://127.0.0.1:5000/#/compare-runs"
    assert json.loads(unquote(chosen)) == [found[t].info.run_id for t in ("t0000", "t0001")]
    assert json.loads(unquote(experiments)) == [found["llm-1"].info.experiment_id]
    assert experiment_url("http://h", uri_of(storage), "llm").startswith("http://h/#/experiments/")
    with pytest.raises(UserError, match="no runs of sweep 'other'"):
        comparison_url("http://127.0.0.1:5000", uri_of(storage), "other")


def test_a_password_is_on_no_command_line() -> None:
    uri = "postgresql://tune:secret@db/mlflow"
    command = ui_command(Path("/artifacts"), "127.0.0.1", 5000)
    assert command[1:4] == ["-m", "mlflow", "server"]
    assert "secret" not in " ".join(command)
    assert ui_environment(uri)["MLFLOW_BACKEND_STORE_URI"] == uri


def test_an_unusable_store_is_one_warning_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = MLflowTracker("nosuch://tune:secret@host/db", None, "llm", "s")
    tracker.sweep_started("s", {}, {})
    tracker.trial_started(trial(0))
    tracker.reported("t0000", report(1, 0.5))
    tracker.close(WAIT_S)
    assert tracker.problem is not None
    assert "3 of 3 events lost" in tracker.problem
    assert "secret" not in tracker.problem + caplog.text
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_stuck_sink_delays_nobody() -> None:
    release = threading.Event()

    class Stuck(Deaf):
        def trial_started(self, record: TrialRecord) -> None:
            release.wait()

    tracker = Background(Stuck, "stuck")
    tracker.trial_started(trial(0))
    tracker.close(timeout=0.01)
    assert tracker.problem == "stuck: 1 of 1 events not sent yet"
    release.set()
    tracker.close(WAIT_S)
    assert tracker.problem is None


def test_reports_of_a_trial_are_sent_together_and_in_order() -> None:
    told: list[object] = []

    class Listening(Deaf):
        def trial_started(self, record: TrialRecord) -> None:
            told.append(record.id)

        def reported(self, trial_id: str, reports: list[Report]) -> None:
            told.append((trial_id, [r.step for r in reports]))

        def trial_ended(self, record: TrialRecord) -> None:
            told.append(record.state.value)

    go = threading.Event()

    def open_sink() -> Listening:
        go.wait()
        return Listening()

    tracker = Background(open_sink, "listening")
    tracker.trial_started(trial(0))
    for step in (1, 2, 3):
        tracker.reported("t0000", report(step, 1.0))
    tracker.trial_ended(trial(0, TrialState.COMPLETED))
    go.set()
    tracker.close(WAIT_S)
    assert told == ["t0000", ("t0000", [1, 2, 3]), "completed"]


def test_mlflow_prints_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from results.tracking import MLflowTracker\n"
        "t = MLflowTracker(sys.argv[1], Path(sys.argv[2]), 'e', 'k')\n"
        "t.sweep_started('n', {}, {}); t.sweep_ended('FINISHED', {'best': 1.0}); t.close(60)\n"
        "sys.exit(t.problem)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, uri_of(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
