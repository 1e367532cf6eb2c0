"""A sweep is delivered to MLflow by another process, whatever becomes of either of the two."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.storage.fencing import Fence
from results.tracking import Ending
from search_spaces.loading.sweep_file import dump_sweep
from tests.tuning.simulate import finish, make_spec, open_run
from tuning.controller.sweep_dir.folder import SweepState, write_state
from tuning.controller.sweep_dir.lock import acquire_lock
from tuning.controller.tracking.observer import TrackerObserver, make_tracker
from tuning.controller.tracking.process_client import TrackingClient

ROOT = Path(__file__).parents[3]
DONE = Ending("FINISHED", {"best_loss": 0.5})
WAIT_S = 90.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process starts with the first report."""
    monkeypatch.setattr("tuning.controller.tracking.process_client._LATER_S", 0.0)


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    """A sweep that ran without a tracker."""
    spec = make_spec(budget={"trials": 3}, tracking={"name": "mlflow"})
    paths = SweepPaths(tmp_path / "sweeps" / "simulated")
    paths.root.mkdir(parents=True)
    paths.spec.write_text(dump_sweep(spec))
    write_state(paths, SweepState("a-sweep", (), ()))
    finish(open_run(paths.root, spec))
    return paths


def courier_of(paths: SweepPaths, fence: Fence, monkeypatch: pytest.MonkeyPatch) -> TrackingClient:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracker = make_tracker(make_spec(tracking={"name": "mlflow"}), paths, fence)
    assert isinstance(tracker, TrackingClient)
    return tracker


@pytest.mark.slow
def test_what_was_not_told_and_a_killed_process_are_made_up_for(
    paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(paths.root, make_spec(budget={"trials": 3}))
    first = run.records["t0000"]
    with acquire_lock(paths.lock) as fence:
        courier = courier_of(paths, fence, monkeypatch)
        TrackerObserver(courier).trial_started(first)
        assert courier._process is None, "it waits for a report"
        courier.changed(first.id, reported=True)
        assert courier._process is not None
        courier._process.kill()
        courier._process.wait()
        courier.changed(first.id, reported=True)
        assert courier.close(DONE, WAIT_S) is None
    db = sqlite3.connect(paths.root.parent / "mlflow.db")
    runs = dict(db.execute("select name, status from runs"))
    points = Counter(db.execute("select run_uuid, key, step from metrics where key = 'loss'"))
    db.close()
    assert set(runs) == {"simulated", *run.records}
    assert runs["simulated"] == "FINISHED"
    assert len(points) == sum(len(curve) for curve in run._curves.values())
    assert set(points.values()) == {1}


@pytest.mark.slow
def test_who_lost_the_sweep_is_told_so(paths: SweepPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    with acquire_lock(paths.lock) as stale:
        pass
    with acquire_lock(paths.lock):
        courier = courier_of(paths, stale, monkeypatch)
        said = courier.close(DONE, WAIT_S)
    assert "taken over" in (said or "")


def test_a_process_that_does_not_listen_costs_the_driver_no_time(tmp_path: Path) -> None:
    courier = TrackingClient("MLflow", [sys.executable, "-c", "import time; time.sleep(1000)"])
    for number in range(20_000):  # more than a pipe holds
        courier.changed(f"t{number:04d}", reported=True)
    process = courier._process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    courier._command[-1] = "import sys; sys.stdin.readline(); sys.exit(3)"
    assert courier.close(DONE, WAIT_S) == "MLflow: its process ended with exit code 3"


def test_warnings_are_the_drivers(caplog: pytest.LogCaptureFixture) -> None:
    says = 'import sys; sys.stdin.readline(); print(\'{"warning": "down"}\\n{"undelivered": "x"}\')'
    courier = TrackingClient("MLflow", [sys.executable, "-c", says])
    assert courier.close(DONE, WAIT_S) == "x"
    assert [r.getMessage() for r in caplog.records] == ["down"]


def test_the_cores_are_left_to_workers_that_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of what changed meanwhile, a trial that is over too, it hears when it begins."""
    hears = (
        "import json, sys\n"
        "heard = []\n"
        "for line in sys.stdin:\n"
        "    if line.startswith('{'):\n"
        "        print(json.dumps({'undelivered': ' '.join(heard)}))\n"
        "        break\n"
        "    heard.append(line.strip())\n"
    )
    courier = TrackingClient("MLflow", [sys.executable, "-c", hears])
    monkeypatch.setattr("tuning.controller.tracking.process_client._LATER_S", 1000.0)
    courier.changed("t0000", reported=True)
    assert courier._process is None
    monkeypatch.setattr("tuning.controller.tracking.process_client._LATER_S", 0.0)
    courier.changed("t0000", reported=False)
    assert courier._process is None, "nothing is new"
    courier.changed("t0001", reported=True)
    assert courier._process is not None
    assert courier.close(DONE, WAIT_S) == "t0000 t0001"


def test_it_leaves_with_its_driver(paths: SweepPaths) -> None:
    driver = (
        "import os, sys\n"
        "from results.storage.fencing import NullFence\n"
        "from tuning.controller.tracking.process_client import TrackingClient, tracking_command\n"
        "from tuning.controller.tracking import process_client\n"
        "process_client._LATER_S = 0.0\n"
        "told = TrackingClient('MLflow', tracking_command(sys.argv[1], NullFence()))\n"
        "told.changed('t0000', reported=True)\n"
        "print(told._process.pid, flush=True)\n"
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
    assert select.select([fd], [], [], WAIT_S)[0], "it is still there"
    os.close(fd)
