"""The folder of a local cluster's files: private, removed in every case, logs kept when needed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuning.cluster.session_folder import session_folder

SECRET = "canary-77ab31"


@pytest.fixture(autouse=True)
def private_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # pytest's is too long
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def write_log(folder: Path) -> None:
    logs = folder / "session_2026-01-01" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text("x" * 300_000 + f"\ncrashed with {SECRET}\n")
    (logs / "empty.err").touch()
    (logs / "debug_state.txt").write_text("state")


@pytest.mark.parametrize("failed", [False, True])
def test_folder_is_private_and_removed(private_tmp: Path, tmp_path: Path, failed: bool) -> None:
    with session_folder(tmp_path / "sweep" / "logs", lambda: failed) as folder:
        assert folder.parent.parent == private_tmp
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        longest = "/session_2026-11-22_18-50-05_453417_1234567/sockets/plasma_store"
        assert len(os.fsencode(folder)) + len(longest) <= 107
        write_log(folder)
    assert list(private_tmp.iterdir()) == []
    kept = {p.name for p in (tmp_path / "sweep").rglob("*") if p.is_file()}
    assert kept == ({"raylet.out"} if failed else set())


def test_logs_of_an_error_are_kept_redacted(tmp_path: Path) -> None:
    def fail() -> None:
        with session_folder(tmp_path / "logs", lambda: False) as folder:
            write_log(folder)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    (kept,) = tmp_path.rglob("raylet.out")
    assert kept.read_text().endswith("crashed with ***\n")
    assert kept.stat().st_size < 300_000


DRIVER = """
import os, signal, sys
from pathlib import Path
from tests.tuning.cluster.test_session_folder import write_log
from tuning.cluster.session_folder import session_folder
with session_folder(Path(sys.argv[1]), lambda: False) as folder:
    write_log(folder)
    print(folder, flush=True)
    signal.pause()
"""


def test_folder_of_a_killed_driver_is_removed_by_the_next(
    private_tmp: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "ray" / "logs"
    logs.parent.mkdir()
    command = [sys.executable, "-c", DRIVER, str(logs)]
    other = private_tmp / f"tune-{os.getuid()}-of-something-else"
    other.mkdir()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        left = Path(driver.stdout.readline().strip())
        with session_folder(None, lambda: False):
            assert left.is_dir()  # its driver lives
        driver.send_signal(signal.SIGKILL)
        driver.wait(60)
    assert left.is_dir()
    assert (left.parent / "driver.lock").is_file()
    with session_folder(None, lambda: False):
        assert not left.parent.exists()
    assert other.is_dir()
    (kept,) = logs.rglob("raylet.out")
    assert SECRET not in kept.read_text()


AGENT = 'exec -a ray::DashboardAgent sleep 600 2>>"$0"/agent.err'


def test_folder_and_agents_of_a_killed_driver_are_removed_without_a_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "logs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        left = Path(driver.stdout.readline().strip())
        agent = subprocess.Popen(["bash", "-c", AGENT, str(left)])
        driver.send_signal(signal.SIGKILL)
    assert agent.wait(60) == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while left.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_too_long_path_is_not_used(private_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = private_tmp / ("x" * 40)
    long.mkdir()
    monkeypatch.setenv("RAY_TMPDIR", str(long))
    with session_folder(None, lambda: False) as folder:
        assert folder.parent.parent == Path("/tmp")
