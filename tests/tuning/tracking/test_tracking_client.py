"""The tracking process delivers a sweep to MLflow, even if it or its driver is killed."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import read_reports
from results.storage.fencing import Fence
from results.sweep_folder.lock import acquire_lock
from results.tracking import Ending
from tests.tuning.simulate import make_spec, new_sweep, open_run, run_sweep
from tuning.controller.tracking.observer import TrackerObserver, make_tracker
from tuning.controller.tracking.tracking_client import TrackingClient, prepare_process

ROOT = Path(__file__).parents[3]
DONE = Ending("FINISHED", {"best_loss": 0.5})
WAIT_S = 90.0


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    """A sweep that ran without a tracker."""
    spec = make_spec(budget={"trials": 3}, tracking={"name": "mlflow"})
    return run_sweep(new_sweep(spec, tmp_path / "sweeps").root, spec).paths


def client_of(paths: SweepPaths, fence: Fence, monkeypatch: pytest.MonkeyPatch) -> TrackingClient:
    """The client of a sweep, whose process starts with the first report."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = make_tracker(make_spec(tracking={"name": "mlflow"}), paths, fence)
    assert isinstance(tracker, TrackingClient)
    tracker.start_delay_s = 0.0
    return tracker


def client(*command: str) -> TrackingClient:
    return TrackingClient("MLflow", [sys.executable, "-c", *command], start_delay_s=0.0)


def kill(pid: int | None) -> None:
    """Kill a process and wait until it has ended."""
    assert pid is not None
    ended = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([ended], [], [], WAIT_S)[0]
    os.close(ended)


@pytest.mark.slow
def test_tracking_client_restarts_a_killed_process_and_delivers_all(
    paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(paths.root, make_spec(budget={"trials": 3}))
    first = run.records["t0000"]
    with acquire_lock(paths.lock) as fence:
        client = client_of(paths, fence, monkeypatch)
        TrackerObserver(client).trial_started(first)
        assert client.pid is None, "it starts with the first report"
        client.changed(first.id, reported=True)
        kill(client.pid)
        prepared = prepare_process()
        client.changed(first.id, reported=True)
        assert client.pid == prepared
        assert client.close(DONE, WAIT_S) is None
    db = sqlite3.connect(paths.root.parent / "mlflow.db")
    runs = dict(db.execute("select name, status from runs"))
    points = Counter(db.execute("select run_uuid, key, step from metrics where key = 'loss'"))
    db.close()
    assert set(runs) == {"simulated", *run.records}
    assert runs["simulated"] == "FINISHED"
    reports = [r for trial in run.records for r in read_reports(paths.trial(trial))]
    assert len(points) == len(reports)
    assert set(points.values()) == {1}


@pytest.mark.slow
def test_tracking_client_reports_a_lost_sweep(
    paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acquire_lock(paths.lock) as stale:
        pass
    with acquire_lock(paths.lock):
        undelivered = client_of(paths, stale, monkeypatch).close(DONE, WAIT_S)
    assert "taken over" in (undelivered or "")


def test_tracking_client_never_waits_for_a_process_that_does_not_read(tmp_path: Path) -> None:
    """The first process never reads, the next one reads a line and fails."""
    program = (
        "import pathlib, sys, time\n"
        "marker = pathlib.Path(sys.argv[1])\n"
        "if not marker.exists():\n"
        "    marker.touch()\n"
        "    time.sleep(1000)\n"
        "sys.stdin.readline()\n"
        "sys.exit(3)\n"
    )
    marker = tmp_path / "started"
    tracker = client(program, str(marker))
    for number in range(20_000):  # more than a pipe holds
        tracker.changed(f"t{number:04d}", reported=True)
    while not marker.exists():
        time.sleep(0.01)
    kill(tracker.pid)
    assert tracker.close(DONE, WAIT_S) == "MLflow: its process ended with exit code 3"


def test_tracking_client_logs_warnings_of_its_process(caplog: pytest.LogCaptureFixture) -> None:
    tracker = client(
        'import sys; sys.stdin.readline(); print(\'{"warning": "down"}\\n{"undelivered": "x"}\')'
    )
    assert tracker.close(DONE, WAIT_S) == "x"
    assert [r.getMessage() for r in caplog.records] == ["down"]


def test_tracking_client_starts_its_process_after_a_delay() -> None:
    """The process is told of all trials that changed before its start."""
    tracker = client(
        "import json, sys\n"
        "received = []\n"
        "for line in sys.stdin:\n"
        "    if line.startswith('{'):\n"
        "        print(json.dumps({'undelivered': ' '.join(received)}))\n"
        "        break\n"
        "    received.append(line.strip())\n"
    )
    tracker.start_delay_s = 1000.0
    tracker.changed("t0000", reported=True)
    assert tracker.pid is None
    tracker.start_delay_s = 0.0
    tracker.changed("t0000", reported=False)
    assert tracker.pid is None, "there is no report"
    tracker.changed("t0001", reported=True)
    assert tracker.pid is not None
    assert tracker.close(DONE, WAIT_S) == "t0000 t0001"


def test_tracking_client_starts_its_process_when_no_trial_runs_any_more() -> None:
    tracker = client('import sys; sys.stdin.readline(); print(\'{"undelivered": "x"}\')')
    tracker.start_delay_s = 1000.0
    tracker.closes_soon()
    assert tracker.pid is None, "there is nothing to deliver"
    tracker.changed("t0000", reported=True)
    assert tracker.pid is None
    tracker.closes_soon()
    assert tracker.pid is not None
    assert tracker.close(DONE, WAIT_S) == "x"


def test_tracking_process_ends_with_a_session_that_an_error_ends() -> None:
    tracker = client("import sys; sys.stdin.read()")
    tracker.changed("t0000", reported=True)
    assert tracker.pid is not None
    ended = os.pidfd_open(tracker.pid)
    TrackerObserver(tracker).session_ended(None)
    assert select.select([ended], [], [], WAIT_S)[0]
    os.close(ended)


def test_tracking_process_ends_with_its_driver(paths: SweepPaths) -> None:
    driver = (
        "import os, sys\n"
        "from results.storage.fencing import NullFence\n"
        "from tuning.controller.tracking.tracking_client import TrackingClient, tracking_command\n"
        "client = TrackingClient('MLflow', tracking_command(sys.argv[1], NullFence()), 0.0)\n"
        "client.changed('t0000', reported=True)\n"
        "print(client.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", driver, str(paths.root)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([fd], [], [], WAIT_S)[0], "the process still runs"
    os.close(fd)


def test_process_ends_without_a_word_if_the_driver_is_dead(
    paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    module = "tuning.controller.tracking.tracking_process"
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(paths.root)],
        cwd=ROOT,
        text=True,
        **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write('{"status": "FINISHED", "metrics": {}, "timeout": 60}\n')
    process.stdin.close()
    assert process.stderr is not None
    with process.stderr as said:
        assert said.read() == ""
    assert process.wait(WAIT_S) == 0
