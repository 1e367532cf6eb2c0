"""Delivery to MLflow: late, interrupted, to servers in trouble, and yet whole and once."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, TrialState
from results.tracking import Delivery, Ending
from results.tracking import delivery as delivery_module
from results.tracking.averages import Average
from results.tracking.extras import Extras
from tests.results.servers import failing_server, free_port, hanging_server
from tests.results.tracked import (
    WAIT_S,
    open_tracker,
    points,
    runs,
    storage,
    sweep,
    trial,
    uri_of,
    write,
)

__all__ = ["storage", "sweep"]
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own


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
