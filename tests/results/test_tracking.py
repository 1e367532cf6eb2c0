"""MLflow's view of a sweep, on a real SQLite store: the folder is what it is told from."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest

from results import environment
from results.environment import Environment
from results.paths import SweepPaths
from results.records import (
    Attempt,
    Inherited,
    Report,
    TrialRecord,
    TrialState,
    append_report,
    write_trial,
)
from results.tracking import (
    Delivery,
    Ending,
    SweepFacts,
    comparison_url,
    curves_url,
    experiment_url,
    mlflow_tracker,
    ui_command,
    ui_environment,
)
from results.tracking import delivery as delivery_module
from results.tracking.averages import Average
from results.tracking.extras import Extras, extras
from search_spaces.errors import UserError
from tests.results.servers import failing_server, free_port, hanging_server

WAIT_S = 100.0

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracking storage")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    paths = SweepPaths(tmp_path / "sweep")
    paths.trials.mkdir(parents=True)
    return paths


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


def write(paths: SweepPaths, record: TrialRecord, *steps: int, attempt: int = 1) -> None:
    """The trial as it is now, and reports that are new."""
    write_trial(paths.trial(record.id), record)
    for step in steps:
        metrics = {"eval/loss@2": step / 10}
        report = Report(step=step, metrics=metrics, attempt=attempt, time=1e9 + step)
        append_report(paths.trial(record.id), report)


def open_tracker(paths: SweepPaths, uri: str, key: str) -> Delivery:
    facts = SweepFacts(key, "llm-1", {"tune.version": "1"}, {"trials": 3})
    return mlflow_tracker(paths, uri, paths.root / "artifacts", "llm", facts)


def runs(uri: str, key: str) -> dict[str, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    [experiment] = [e for e in client.search_experiments() if e.name == "llm"]
    found = client.search_runs([experiment.experiment_id], f"tags.`tune.sweep` = '{key}'")
    assert len({r.info.run_name for r in found}) == len(found)
    return {r.info.run_name: r for r in found}


def points(storage: Path, run: Any) -> list[tuple[int, float]]:
    """Every row of the run's metric: what was sent twice is here twice."""
    with sqlite3.connect(storage / "mlflow.db") as db:
        query = "select step, value from metrics where run_uuid = ? order by step"
        return db.execute(query, (run.info.run_id,)).fetchall()


def test_a_resumed_sweep_continues_its_runs(storage: Path, sweep: SweepPaths) -> None:
    first = open_tracker(sweep, uri_of(storage), "s/resumed")
    for number in range(3):
        write(sweep, trial(number), 1, 2)
        first.changed(f"t{number:04d}", reported=True)
    write(sweep, trial(0, TrialState.COMPLETED))
    write(sweep, trial(1, TrialState.STOPPED))
    for trial_id in ("t0000", "t0001"):
        first.changed(trial_id, reported=False)
    assert first.close(Ending("KILLED", {"best": 0.2}), WAIT_S) is None
    before = runs(uri_of(storage), "s/resumed")
    assert {n: r.info.status for n, r in before.items()} == {
        "llm-1": "KILLED",
        "t0000": "FINISHED",
        "t0001": "KILLED",
        "t0002": "KILLED",
    }

    write(sweep, trial(2, attempts=2), 2, 3, attempt=2)  # step 2 was done again
    second = open_tracker(sweep, uri_of(storage), "s/resumed")
    second.changed("t0002", reported=True)
    write(sweep, trial(2, TrialState.FAILED, attempts=2))
    second.changed("t0002", reported=False)
    assert second.close(Ending("FINISHED", {"best": 0.3}), WAIT_S) is None

    after = runs(uri_of(storage), "s/resumed")
    assert {n: r.info.run_id for n, r in after.items()} == {
        n: r.info.run_id for n, r in before.items()
    }
    assert after["llm-1"].info.status == "FINISHED"
    assert after["t0002"].info.status == "FAILED"
    assert after["t0002"].data.tags["tune.attempt"] == "2"
    assert after["t0002"].data.tags["mlflow.parentRunId"] == after["llm-1"].info.run_id
    assert points(storage, after["t0002"]) == [(1, 0.1), (2, 0.2), (3, 0.3)]


def annotated(sweep: SweepPaths) -> TrialRecord:
    """A finished trial of two attempts, with notes of both and a lineage."""
    taken = Inherited(step=1, donor="t0009", donor_step=4, before={}, after={})
    record = trial(0, TrialState.COMPLETED, attempts=2).model_copy(update={"lineage": (taken,)})
    write(sweep, record, 1, 2)
    files = sweep.trial(record.id)
    for attempt in (1, 2):
        ran = Environment(source={}, data="d" * 64, versions={"torch": str(attempt)}, hardware={})
        environment.write(files, attempt, ran)
        line = environment.sample_line(attempt, 1e9 + attempt, {"system/memory_mb": 9.0 * attempt})
        files.samples(attempt).write_text(line + '{"torn')
    files.checkpoint(2).mkdir(parents=True)
    (files.checkpoint(2) / "lineage.json").write_text('{"init": "abc"}')
    return record


def test_what_a_trial_ran_with_is_told_when_it_has_ended(storage: Path, sweep: SweepPaths) -> None:
    annotated(sweep)
    facts = SweepFacts("s/facts", "llm-1", {}, {}, {"sweep.yaml": "name: llm\n"})
    for _ in range(2):  # a second session says nothing twice
        sweep.delivered.unlink(missing_ok=True)
        tracker = mlflow_tracker(sweep, uri_of(storage), sweep.root / "artifacts", "llm", facts)
        assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    found = runs(uri_of(storage), "s/facts")
    told = found["t0000"].data.tags
    assert told["tune.version.torch"] == "2"
    assert (told["tune.data"], told["tune.init"]) == ("d" * 64, "abc")
    assert told["tune.donors"] == "t0009 at 4"
    with sqlite3.connect(storage / "mlflow.db") as db:
        query = "select key, step, value from metrics where run_uuid = ? and key like 'system/%'"
        samples = db.execute(query, (found["t0000"].info.run_id,)).fetchall()
    assert samples == [("system/memory_mb", 1, 9.0), ("system/memory_mb", 2, 18.0)]
    assert _artifact(found["llm-1"], "sweep.yaml") == "name: llm\n"
    history = json.loads(_artifact(found["t0000"], "attempts.json"))
    assert [a["number"] for a in history] == [1, 2]


def _artifact(run: Any, name: str) -> str:
    return (Path(unquote(run.info.artifact_uri.removeprefix("file://"))) / name).read_text()


def test_a_trial_without_notes_has_no_extras(sweep: SweepPaths) -> None:
    record = trial(0, TrialState.COMPLETED)
    write(sweep, record, 1)
    assert extras(sweep.trial(record.id), record) == Extras()


def test_what_a_run_says_of_its_trial(
    storage: Path, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "canary-7f3a")
    record = trial(2, TrialState.STOPPED)
    config = {**record.config, "url": "http://me:word@host/", "text": "has canary-7f3a in it"}
    write(sweep, record.model_copy(update={"config": config}), 1)
    tracker = open_tracker(sweep, uri_of(storage), "s/says")
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    run = runs(uri_of(storage), "s/says")["t0002"]
    assert run.info.start_time == 1_000_000_000_000
    assert run.info.end_time == 1_000_000_060_000
    assert run.data.tags["tune.seed"] == "2"
    assert run.data.tags["tune.reason"] == "stopped at rung 4"
    assert run.data.params["optim.lr"] == "0.2"
    assert run.data.params["optim.betas"] == "[0.9, 0.95]"
    assert len(run.data.params["note"]) == 6000
    assert run.data.params["url"] == "http://me:***@host/"
    assert run.data.params["text"] == "has *** in it"


@pytest.mark.parametrize("lost", [False, True])
def test_a_killed_driver_leaves_no_run_and_no_point_behind(
    storage: Path, sweep: SweepPaths, lost: bool
) -> None:
    key = f"s/killed-{lost}"
    write(sweep, trial(0), 1, 2)
    write(sweep, trial(1), 1)
    first = open_tracker(sweep, uri_of(storage), key)
    first._round()  # the driver is gone without a word: both runs say they run
    assert {r.info.status for r in runs(uri_of(storage), key).values()} == {"RUNNING"}
    if lost:
        sweep.delivered.unlink(missing_ok=True)

    write(sweep, trial(0, TrialState.COMPLETED, attempts=2), 3, attempt=2)
    second = open_tracker(sweep, uri_of(storage), key)
    assert second.close(second.last_ending, WAIT_S) is None
    found = runs(uri_of(storage), key)
    assert {n: r.info.status for n, r in found.items()} == {
        "llm-1": "KILLED",
        "t0000": "FINISHED",
        "t0001": "KILLED",
    }
    assert points(storage, found["t0000"]) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert points(storage, found["t0001"]) == [(1, 0.1)]


def test_a_locked_database_is_waited_for(tmp_path: Path, sweep: SweepPaths) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    made = open_tracker(sweep, uri_of(tmp_path), "s/locked")
    assert made.close(Ending("KILLED", {}), WAIT_S) is None
    write(sweep, trial(1, TrialState.COMPLETED), 1, 2)
    tracker = open_tracker(sweep, f"{uri_of(tmp_path)}?timeout=0.1", "s/locked")
    db = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    db.execute("begin exclusive")
    assert not tracker._round()
    assert "locked" in tracker._error
    db.execute("rollback")
    db.close()
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    assert points(tmp_path, runs(uri_of(tmp_path), "s/locked")["t0001"]) == [(1, 0.1), (2, 0.2)]


def test_pages_and_command(storage: Path, sweep: SweepPaths) -> None:
    for number in (1, 0):
        write(sweep, trial(number), 1)
    tracker = open_tracker(sweep, uri_of(storage), "s/pages")
    assert tracker.close(Ending("KILLED", {}), WAIT_S) is None
    found = runs(uri_of(storage), "s/pages")
    url = comparison_url("http://127.0.0.1:5000/", uri_of(storage), ["s/pages"])
    page, query = url.split("?")
    chosen, experiments = (part.split("=")[1] for part in query.split("&"))
    assert page == "http://127.0.0.1:5000/#/compare-runs"
    assert json.loads(unquote(chosen)) == [found[t].info.run_id for t in ("t0000", "t0001")]
    assert json.loads(unquote(experiments)) == [found["llm-1"].info.experiment_id]
    page, query = curves_url(url, "eval/loss@2").split("?")
    shown = parse_qs(query)
    assert page == "http://127.0.0.1:5000/#/metric"
    assert shown["runs"] == [unquote(chosen)]
    assert shown["metric"] == ['"eval/loss@2"']
    assert experiment_url("http://h", uri_of(storage), "llm").startswith("http://h/#/experiments/")
    with pytest.raises(UserError, match="no runs of sweep 'other'"):
        comparison_url("http://127.0.0.1:5000", uri_of(storage), ["s/pages", "other"])


def test_a_password_is_on_no_command_line() -> None:
    uri = "postgresql://tune:secret@db/mlflow"
    command = ui_command(Path("/artifacts"), "127.0.0.1", 5000)
    assert command[1:4] == ["-m", "mlflow", "server"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert "secret" not in " ".join(command)
    assert ui_environment(uri)["MLFLOW_BACKEND_STORE_URI"] == uri


def test_an_unusable_store_is_one_warning_and_one_line(
    sweep: SweepPaths, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module.time, "sleep", lambda _: None)
    write(sweep, trial(0), 1)
    tracker = open_tracker(sweep, "nosuch://tune:secret@host/db", "s")
    tracker.changed("t0000", reported=True)
    problem = tracker.close(Ending("FINISHED", {}), WAIT_S)
    assert problem is not None
    assert problem.startswith("MLflow at nosuch://tune:***@host/db: 1 trial not delivered yet (")
    assert "secret" not in problem + caplog.text
    assert len([r for r in caplog.records if r.name.startswith("results")]) == 1


@pytest.mark.parametrize("server", [None, failing_server])
def test_a_server_that_is_down_or_fails_and_is_back_later(
    server: Any, storage: Path, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one session could not deliver the next one does, whole and once."""
    monkeypatch.setattr(delivery_module.time, "sleep", lambda _: None)
    key = f"s/down-{server is None}"
    write(sweep, trial(0, TrialState.COMPLETED), 1, 2)
    write(sweep, trial(1), 1)
    ending = Ending("FINISHED", {"best": 0.1})
    if server is None:
        problem = open_tracker(sweep, f"http://127.0.0.1:{free_port()}", key).close(ending, WAIT_S)
    else:
        with server() as uri:
            problem = open_tracker(sweep, uri, key).close(ending, WAIT_S)
    assert problem is not None
    assert "2 trials not delivered yet (" in problem

    back = open_tracker(sweep, uri_of(storage), key)
    assert back.last_ending == ending
    assert back.close(back.last_ending, WAIT_S) is None
    found = runs(uri_of(storage), key)
    assert found["llm-1"].info.status == "FINISHED"
    assert points(storage, found["t0000"]) == [(1, 0.1), (2, 0.2)]


def test_a_server_that_hangs_delays_nobody(sweep: SweepPaths) -> None:
    write(sweep, trial(0), 1)
    with hanging_server() as (uri, asked):
        tracker = open_tracker(sweep, uri, "s")
        tracker.changed("t0000", reported=True)
        assert asked.wait(WAIT_S)  # it is inside of a call that does not come back
        tracker.changed("t0000", reported=True)
        problem = tracker.close(Ending("FINISHED", {}), timeout=0.01)
        assert problem is not None
        assert "1 trial not delivered yet" in problem
    tracker._thread.join(WAIT_S)
    assert not tracker._thread.is_alive()


class Gate:
    """A sink that fails once, then takes everything."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, list[int]]] = []
        self.failures = 1
        self.open = threading.Event()

    def update(self, record: TrialRecord, reports: list[Report], extras: Extras) -> None:
        self.open.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        self.told.append((record.id, record.state.value, [r.step for r in reports]))

    def average(self, made: Average) -> None:
        self.told.append((made.name, made.params["method"], []))

    def end(self, ending: Ending) -> None:
        self.told.append(("sweep", ending.status, []))


def test_changes_are_sent_together_and_failures_again(sweep: SweepPaths) -> None:
    gate = Gate()
    tracker = Delivery(sweep, lambda: gate, "gate", "gate")
    write(sweep, trial(0), 1, 2, 3)
    tracker.changed("t0000", reported=True)
    write(sweep, trial(0, TrialState.COMPLETED))
    tracker.changed("t0000", reported=False)
    gate.open.set()
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    assert gate.told == [("t0000", "completed", [1, 2, 3]), ("sweep", "FINISHED", [])]


def test_what_was_delivered_is_not_even_asked_about(sweep: SweepPaths) -> None:
    gate = Gate()
    gate.open.set()
    for number in range(3):
        write(sweep, trial(number, TrialState.COMPLETED), 1)
    assert Delivery(sweep, lambda: gate, "g", "one").close(Ending("KILLED", {}), WAIT_S) is None
    gate.told.clear()
    write(sweep, trial(3, TrialState.COMPLETED), 1)
    assert Delivery(sweep, lambda: gate, "g", "one").close(Ending("FINISHED", {}), WAIT_S) is None
    assert [t[0] for t in gate.told] == ["t0003", "sweep"]
    gate.told.clear()  # another server has none of them
    assert Delivery(sweep, lambda: gate, "g", "two").close(Ending("FINISHED", {}), WAIT_S) is None
    assert [t[0] for t in gate.told] == ["t0000", "t0001", "t0002", "t0003", "sweep"]


def test_a_damaged_ledger_costs_questions_only(storage: Path, sweep: SweepPaths) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1, 2)
    for damage in (None, b"", b'{"trials": 3}', b"\xff\x00"):
        if damage is not None:
            sweep.delivered.write_bytes(damage)
        tracker = open_tracker(sweep, uri_of(storage), "s/ledger")
        assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    found = runs(uri_of(storage), "s/ledger")
    assert points(storage, found["t0000"]) == [(1, 0.1), (2, 0.2)]


def test_mlflow_prints_nothing(sweep: SweepPaths, tmp_path: Path) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    code = (
        "import sys; from pathlib import Path; from results.paths import SweepPaths\n"
        "from results.tracking import Ending, SweepFacts, mlflow_tracker\n"
        "facts = SweepFacts('k', 'n', {}, {})\n"
        "t = mlflow_tracker(SweepPaths(Path(sys.argv[2])), sys.argv[1], None, 'e', facts)\n"
        "sys.exit(t.close(Ending('FINISHED', {'best': 1.0}), 60))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, uri_of(tmp_path), str(sweep.root)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
