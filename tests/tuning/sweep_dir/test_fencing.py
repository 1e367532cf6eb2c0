"""A driver that lost its sweep to another one, and its orphaned workers, write nothing more."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import read_reports, read_trials
from results.storage.fencing import Owner, OwnershipLostError
from results.sweep_folder.lock import STALE_S, acquire_lock
from results.tracking import Ending, SweepFacts, mlflow_tracker
from search_spaces.errors import UserError
from tests.chaos import mlflow_state
from tests.tuning.simulate import finish, open_run, outcome, train
from tuning.controller.sweep import SweepController

DRIVER = """
import socket, sys, time
socket.gethostname = lambda: "elsewhere"
from pathlib import Path
from results.paths import SweepPaths
from tests.tuning.simulate import open_run, train
from results.sweep_folder.lock import acquire_lock
from tuning.search.schedulers import Decision
root = Path(sys.argv[1])
root.mkdir()
with acquire_lock(SweepPaths(root).lock) as fence:
    run = open_run(root, fence=fence)
    job = run.next_trial()
    train(run, job, upto=2)
    print("ready", flush=True)
    sys.stdin.readline()
    print("superseded" if job.superseded else "valid", flush=True)
    for act in (lambda: train(run, job), run.lifecycle.release, run.next_trial):
        try:
            act()
        except Exception as e:
            print(type(e).__name__, str(e).splitlines()[0], flush=True)
        else:
            print("wrote", flush=True)
"""


def test_stale_driver_that_wakes_up_writes_nothing(
    tmp_path: Path, uninterrupted: SweepController
) -> None:
    paths = SweepPaths(tmp_path / "s")
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(paths.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as stopped:
        assert stopped.stdout.readline() == "ready\n"
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
        with pytest.raises(UserError, match=f"driven by process {stopped.pid} on elsewhere"):
            acquire_lock(paths.lock).__enter__()
        last_heartbeat = paths.lock.stat().st_mtime - STALE_S - 1
        os.utime(paths.lock, (last_heartbeat, last_heartbeat))
        with acquire_lock(paths.lock) as fence:
            assert fence.number == 2
            run = open_run(paths.root, fence=fence)
            before = _contents(paths.root)
            stopped.send_signal(signal.SIGCONT)
            output, _ = stopped.communicate("go on\n", timeout=100)
            lines = output.splitlines()
            assert lines[0] == "superseded"
            assert len(lines) == 4
            reason = f"taken over by process {os.getpid()} on "
            refused = [s.startswith("OwnershipLostError ") and reason in s for s in lines[1:]]
            assert all(refused), lines
            assert _contents(paths.root) == before
            finish(run)
        assert outcome(run) == outcome(uninterrupted)
    assert json.loads(paths.lock.read_bytes())["fence"] == 2


def _contents(root: Path) -> dict[Path, bytes]:
    """All files except reports, which workers write (see below)."""
    files = [p for p in root.rglob("*") if p.is_file() and p.name != "reports.jsonl"]
    return {p: p.read_bytes() for p in files}


def test_orphaned_attempt_is_superseded_before_its_reports_are_read(
    tmp_path: Path, run: SweepController
) -> None:
    job = run.next_trial()
    train(run, job, upto=2)
    assert not job.superseded
    again = open_run(tmp_path / "s")
    assert job.superseded  # workers check it before they write
    next_job = again.next_trial()
    assert (next_job.trial_id, next_job.attempt) == (job.trial_id, 2)
    assert not next_job.superseded
    assert [r.step for r in read_reports(job.paths)] == [1, 2]


@pytest.mark.parametrize(
    "damage", [None, b"", b"{", b'{"pid": 1}', b'{"pid":1,"host":2,"fence":"x"}']
)
def test_lost_or_damaged_lock_has_no_owner(tmp_path: Path, damage: bytes | None) -> None:
    lock = tmp_path / "owner.lock"
    with acquire_lock(lock) as first:
        if damage is None:
            lock.unlink()
        else:
            lock.write_bytes(damage)
        with pytest.raises(OwnershipLostError, match="without owner"):
            first.check()
        with acquire_lock(lock) as second:
            second.check()
            assert second.number == 1  # starts again, with another token
            with pytest.raises(OwnershipLostError):
                first.check()
    assert not Owner(lock, first.token, 1).holds_lock


def test_stale_driver_delivers_nothing_to_mlflow(tmp_path: Path, run: SweepController) -> None:
    """Another driver takes the sweep over during a slow delivery."""
    uri, paths = f"sqlite:///{tmp_path}/mlflow.db", run.paths
    train(run, run.next_trial())
    train(run, run.next_trial(), upto=2)
    facts = SweepFacts("key", "s", {"folder": str(paths.root)}, {})
    with acquire_lock(paths.lock) as mine:

        def taken_over() -> None:
            held = json.loads(paths.lock.read_bytes())
            paths.lock.write_text(json.dumps({**held, "fence": 2, "token": "another"}))

        fence = Until(mine, 4, taken_over)
        stale = mlflow_tracker(paths, uri, tmp_path, "e", facts, fence)
        stale.changed("t0000", reported=True)
        while fence.checks_left > 0:
            time.sleep(0.05)
        undelivered = stale.close(Ending("FINISHED", {}), timeout=60.0)
        assert "taken over by process" in (undelivered or "")
        sent = _in_mlflow(tmp_path)
        assert sent
        assert not any("FINISHED" in row for row in sent)
        assert not paths.delivered.exists()

    fresh = mlflow_tracker(paths, uri, tmp_path, "e", facts)
    assert fresh.close(Ending("FINISHED", {}), timeout=60.0) is None
    records = {r.id: r for r in read_trials(paths)}
    assert list(mlflow_state.differences(paths, records, tmp_path / "mlflow.db")) == []


@dataclass
class Until:
    """A fence that is lost at the n-th check."""

    mine: Owner
    checks_left: int
    take: Callable[[], None]

    def check(self) -> None:
        self.checks_left -= 1
        if not self.checks_left:
            self.take()
        self.mine.check()


def _in_mlflow(folder: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "mlflow.db")) as db:
        tables = ("runs", "tags", "params", "metrics")
        return [row for table in tables for row in db.execute(f"select * from {table}")]
