"""Delivery is complete and without duplicates, also after interruptions and server failures."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from mlflow import MlflowClient

from results.paths import SweepPaths
from results.records.notes import write_note
from results.records.trial import Report, TrialRecord, TrialState
from results.storage.atomic import temporary
from results.storage.fencing import NullFence
from results.tracking import Delivery, Ending, SweepFacts
from results.tracking import delivery as delivery_module
from results.tracking.extras import Average, Extras
from results.tracking.mlflow.runs import Runs
from tests.results.tracking.servers import failing_server, hanging_server, no_server
from tests.results.tracking.tracked import (
    WAIT_S,
    deliver,
    open_tracker,
    points,
    runs,
    trial,
    uri_of,
    write,
)
from tests.waiting import wait_for


@pytest.mark.parametrize("lost", [False, True], ids=["delivered.json", "no delivered.json"])
def test_delivery_after_a_killed_driver_is_complete_and_ends_all_runs(
    storage: Path, sweep: SweepPaths, lost: bool
) -> None:
    key = f"s/killed-{lost}"
    write(sweep, trial(0), 1, 2)
    write(sweep, trial(1), 1)
    first = open_tracker(sweep, uri_of(storage), key)
    first.deliver_pending()  # then the driver is killed: both runs still have the state RUNNING
    assert {r.info.status for r in runs(uri_of(storage), key).values()} == {"RUNNING"}
    if lost:
        sweep.delivered.unlink(missing_ok=True)

    write(sweep, trial(0, TrialState.COMPLETED, attempts=2), 3, attempt=2)
    second = open_tracker(sweep, uri_of(storage), key)
    assert second.close(second.last_ending, WAIT_S) is None
    found = runs(uri_of(storage), key)
    ended = {name: run.info.status for name, run in found.items()}
    assert ended == {"llm-1": "KILLED", "t0000": "FINISHED", "t0001": "KILLED"}
    assert points(storage, found["t0000"]) == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert points(storage, found["t0001"]) == [(1, 0.1)]


def test_delivery_retries_a_locked_database(
    tmp_path: Path, sweep: SweepPaths, caplog: pytest.LogCaptureFixture
) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    deliver(sweep, uri_of(tmp_path), "s/locked", "KILLED")
    write(sweep, trial(1, TrialState.COMPLETED), 1, 2)
    tracker = open_tracker(sweep, f"{uri_of(tmp_path)}?timeout=0.1", "s/locked")
    db = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    db.execute("begin exclusive")
    assert not tracker.deliver_pending()
    assert "locked" in caplog.text
    db.execute("rollback")
    db.close()
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    assert points(tmp_path, runs(uri_of(tmp_path), "s/locked")["t0001"]) == [(1, 0.1), (2, 0.2)]


def test_error_of_a_database_that_is_open_is_one_line(
    tmp_path: Path, sweep: SweepPaths, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = open_tracker(sweep, uri_of(tmp_path), "s/lost")
    assert tracker.deliver_pending()
    write(sweep, trial(0), 1)
    tracker.changed("t0000", reported=False)
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as db:
        db.execute("alter table runs rename to others")
    assert not tracker.deliver_pending()
    assert "Traceback" not in capfd.readouterr().err  # of MLflow's own log


def test_unusable_store_gives_one_warning_and_no_secret(
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
    assert "training continues" not in caplog.text  # it has ended
    assert len([r for r in caplog.records if r.name.startswith("results")]) == 1


@pytest.mark.parametrize("server", [no_server, failing_server])
def test_next_session_delivers_what_a_failing_server_did_not_store(
    server: Any, storage: Path, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module.time, "sleep", lambda _: None)
    key = f"s/down-{server.__name__}"
    write(sweep, trial(0, TrialState.COMPLETED), 1, 2)
    write(sweep, trial(1), 1)
    ending = Ending("FINISHED", {"best": 0.1})
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


def test_hanging_server_does_not_delay_close(sweep: SweepPaths) -> None:
    write(sweep, trial(0), 1)
    with hanging_server() as (uri, asked):
        tracker = open_tracker(sweep, uri, "s")
        tracker.changed("t0000", reported=True)
        assert asked.wait(WAIT_S)  # the thread is inside a call that does not return
        tracker.changed("t0000", reported=True)
        problem = tracker.close(Ending("FINISHED", {}), timeout=0.01)
        assert problem is not None
        assert "1 trial not delivered yet" in problem
    for thread in delivery_threads():
        thread.join(WAIT_S)
    assert not delivery_threads()


def delivery_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("track ")]


class Gate:
    """A sink that waits for an event, fails once, and then accepts everything."""

    def __init__(self, run_id: str = "one") -> None:
        self.run_id = run_id
        self.received: list[tuple[str, str, list[int]]] = []
        self.failures = 1
        self.open = threading.Event()

    def update(self, record: TrialRecord, reports: list[Report], extras: Extras) -> None:
        self.open.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("gone")
        self.received.append((record.id, record.state.value, [r.step for r in reports]))

    def average(self, average: Average) -> None:
        self.received.append((average.name, average.params["method"], []))

    def end(self, ending: Ending) -> None:
        self.received.append(("sweep", ending.status, []))


def test_changes_are_sent_together_and_failures_are_retried(sweep: SweepPaths) -> None:
    gate = Gate()
    tracker = Delivery(sweep, lambda: gate, "gate")
    write(sweep, trial(0), 1, 2, 3)
    tracker.changed("t0000", reported=True)
    write(sweep, trial(0, TrialState.COMPLETED))
    tracker.changed("t0000", reported=False)
    gate.open.set()
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    assert gate.received == [("t0000", "completed", [1, 2, 3]), ("sweep", "FINISHED", [])]


def test_trial_that_ends_while_another_is_delivered_comes_before_the_end(sweep: SweepPaths) -> None:
    ending, answers = Ending("FINISHED", {}), SimpleQueue[str | None]()
    closer = threading.Thread(target=lambda: answers.put(tracker.close(ending, WAIT_S)))

    class SlowGate(Gate):
        def update(self, record: TrialRecord, reports: list[Report], extras: Extras) -> None:
            if record.id == "t0000":
                write(sweep, trial(1, TrialState.COMPLETED), 1)
                tracker.changed("t0001", reported=True)
                closer.start()
                wait_for(lambda: tracker.last_ending == ending)
            super().update(record, reports, extras)

    gate = SlowGate()
    gate.failures = 0
    gate.open.set()
    tracker = Delivery(sweep, lambda: gate, "gate")
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    tracker.changed("t0000", reported=True)
    assert answers.get(timeout=WAIT_S) is None
    assert [name for name, *_ in gate.received] == ["t0000", "t0001", "sweep"]


def test_delivered_trials_are_skipped_while_the_sink_has_the_sweeps_run(
    sweep: SweepPaths,
) -> None:
    gate = Gate()
    gate.open.set()
    for number in range(3):
        write(sweep, trial(number, TrialState.COMPLETED), 1)
    assert Delivery(sweep, lambda: gate, "g").close(Ending("KILLED", {}), WAIT_S) is None
    gate.received.clear()
    write(sweep, trial(3, TrialState.COMPLETED), 1)
    assert Delivery(sweep, lambda: gate, "g").close(Ending("FINISHED", {}), WAIT_S) is None
    assert [t[0] for t in gate.received] == ["t0003", "sweep"]
    lost = Gate("two")  # it made a new run of the sweep, so it has none of its trials
    lost.failures = 0
    lost.open.set()
    assert Delivery(sweep, lambda: lost, "g").close(Ending("FINISHED", {}), WAIT_S) is None
    assert [t[0] for t in lost.received] == ["t0000", "t0001", "t0002", "t0003", "sweep"]


def test_damaged_delivered_file_causes_no_duplicates(storage: Path, sweep: SweepPaths) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1, 2)
    for damage in (None, b"", b'{"trials": 3}', b'{"trials": {}, "ending": {"x": 1}}', b"\xff\x00"):
        if damage is not None:
            sweep.delivered.write_bytes(damage)
        found = deliver(sweep, uri_of(storage), "s/damaged")
    assert points(storage, found["t0000"]) == [(1, 0.1), (2, 0.2)]


def test_notes_reach_the_runs_and_replace_the_description(storage: Path, sweep: SweepPaths) -> None:
    write(sweep, trial(0, TrialState.COMPLETED), 1)
    deliver(sweep, uri_of(storage), "s/notes")
    write_note(sweep, "t0000", "try again", ["keep", "odd"])
    write_note(sweep, "", "of the whole", [])
    tags = {name: r.data.tags for name, r in deliver(sweep, uri_of(storage), "s/notes").items()}
    assert tags["t0000"]["mlflow.note.content"] == "try again"
    assert tags["t0000"]["tune.tags"] == "keep, odd"
    assert tags["llm-1"]["mlflow.note.content"] == "of the whole"


def test_runs_that_a_server_made_after_a_timeout_are_deleted(
    storage: Path, sweep: SweepPaths
) -> None:
    uri, key, failures = uri_of(storage), "s/late", [ConnectionError("timed out")]

    def open_sink() -> Runs:
        if failures:
            raise failures.pop()
        return Runs(uri, storage, "llm", SweepFacts(key, "llm-1", {}, {"a": 1}), NullFence())

    tracker = Delivery(sweep, open_sink, "late")
    write(sweep, trial(0), 1)
    tracker.changed("t0000", reported=False)
    assert not tracker.deliver_pending()
    assert tracker.deliver_pending()
    for run in runs(uri, key).values():  # as the call that timed out made them
        MlflowClient(uri).create_run(run.info.experiment_id, 0, run.data.tags, run.info.run_name)
    write(sweep, trial(0, TrialState.COMPLETED), 2)
    tracker.changed("t0000", reported=False)
    assert tracker.close(Ending("FINISHED", {}), WAIT_S) is None
    found = runs(uri, key)  # asserts that no two have one name
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    assert points(storage, found["t0000"]) == [(1, 0.1), (2, 0.2)]


def test_deleted_experiment_is_named_with_the_command_that_restores_it(
    tmp_path: Path, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_module.time, "sleep", lambda _: None)
    deliver(sweep, uri_of(tmp_path), "s/gone")
    client = MlflowClient(uri_of(tmp_path))
    client.delete_experiment(client.get_experiment_by_name("llm").experiment_id)
    problem = open_tracker(sweep, uri_of(tmp_path), "s/gone").close(Ending("KILLED", {}), WAIT_S)
    assert "experiment llm is deleted there: mlflow experiments restore" in str(problem)


def test_delivered_file_that_cannot_be_written_is_a_warning(
    sweep: SweepPaths, caplog: pytest.LogCaptureFixture
) -> None:
    Path(temporary(sweep.delivered)).mkdir(parents=True)
    delivery_module.Delivered(sweep).save()
    assert "delivered.json: cannot be written (" in caplog.text
