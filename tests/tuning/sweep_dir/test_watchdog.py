"""A session that is stuck ends: by itself, and soon after a signal."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.storage.fault_injection import VARIABLE
from results.sweep_folder.lock import acquire_lock, current_driver
from tests.search_spaces.examples import DIGITS
from tests.tuning.sweep_dir.test_lock import HOLD
from tuning.controller.events import Interrupt
from tuning.controller.sweep_dir.watchdog import SessionWatchdog

ROOT = Path(__file__).parents[3]


def hang(watchdog: SessionWatchdog) -> None:
    watchdog.progress(limit_s=2.0)
    threading.Event().wait(60.0)


def test_watchdog_interrupts_a_python_caller_and_writes_all_stacks(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's `&` ignores it
    paths = SweepPaths(tmp_path)
    with SessionWatchdog(Interrupt(), paths) as watchdog, pytest.raises(KeyboardInterrupt):
        hang(watchdog)
    stacks = paths.log.read_text()
    assert "no progress for 2 s; all threads:" in stacks
    assert "in hang" in stacks
    assert paths.log.stat().st_mode & 0o077 == 0


def test_watchdog_is_silent_while_there_is_progress(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    with SessionWatchdog(Interrupt(), paths) as watchdog:
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            watchdog.progress(limit_s=3.0)
            time.sleep(0.1)
    assert not paths.log.exists()


def test_watchdog_releases_the_sweep_of_its_own_process_only(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    watchdog = SessionWatchdog(Interrupt(), paths)
    with acquire_lock(paths.lock):
        watchdog.release()
        assert current_driver(paths.lock) is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(paths.lock)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        watchdog.release()
        assert f"process {other.pid} " in (current_driver(paths.lock) or "")
        other.kill()


@pytest.mark.slow
def test_signal_ends_a_session_that_hangs_before_its_first_trial(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(DIGITS)
    paths = SweepPaths(tmp_path / "sweeps" / "digits")
    with subprocess.Popen(
        [sys.executable, "-m", "tuning", "run", "digits.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: "state.json:written:2=hang"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not current_driver(paths.lock):
            assert process.poll() is None
            time.sleep(0.05)
        time_asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert time.monotonic() - time_asked < 15.0
        assert process.stderr is not None
        said = process.stderr.read()
    assert (
        f"stuck, no progress for 10 s (stacks in {paths.log}); continue with: tune resume" in said
    )
    assert "was killed" not in said
    assert "in record_session_time" in paths.log.read_text()
    assert current_driver(paths.lock) is None
