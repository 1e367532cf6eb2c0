"""Signals of `timeout`, which come twice, and of a terminal that is gone."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.search_spaces.examples import DIGITS

SESSION = """
import sys, time, traceback
from pathlib import Path
from tuning.cli.run.signals import StopOnSignal
folder = Path(sys.argv[1])
def tell(*error):  # there may be no terminal
    (folder / "error").write_text("".join(traceback.format_exception(*error)))
sys.excepthook = tell
with StopOnSignal() as stop:
    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    print("summary", flush=True)
    (folder / "asked").write_text(str(stop.requested))
"""
RUN = """
import signal
from tuning.cli.app import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
main()
"""
ENV = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


def wait_until_ready(folder: Path, process: subprocess.Popen[bytes]) -> None:
    while not (folder / "ready").exists():
        assert process.poll() is None
        time.sleep(0.02)


@pytest.mark.parametrize("later", [False, True])
def test_second_signal_ends_the_process_unless_it_comes_at_once(
    tmp_path: Path, later: bool
) -> None:
    command = [sys.executable, "-c", SESSION, str(tmp_path)]
    with subprocess.Popen(command, env=ENV, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        wait_until_ready(tmp_path, process)
        process.terminate()
        assert b"stopping" in process.stderr.readline() + process.stderr.readline()
        process.terminate()
        deadline = time.monotonic() + 60.0
        while later and process.poll() is None and time.monotonic() < deadline:
            process.terminate()
            time.sleep(0.1)
        (tmp_path / "go").touch()
        assert process.wait(60) == (130 if later else 0)


def heed_hangups() -> None:
    """Undo a nohup under which the tests may run."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize(("wrapper", "asked"), [([], "True"), (["nohup"], "False")])
def test_hangup_stops_a_session_unless_ignored(
    tmp_path: Path, wrapper: list[str], asked: str
) -> None:
    ours, terminal = pty.openpty()
    command = ["setsid", "--ctty", *wrapper, sys.executable, "-c", SESSION, str(tmp_path)]
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, preexec_fn=heed_hangups, **streams
    ) as process:
        os.close(terminal)
        wait_until_ready(tmp_path, process)
        os.close(ours)  # the kernel sends SIGHUP
        (tmp_path / "go").touch()
        code = process.wait(60)  # the summary is written, but not to the terminal
    error = tmp_path / "error"
    assert code == 0, error.read_text() if error.exists() else "no exception"
    assert (tmp_path / "asked").read_text() == asked


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_session_starts_stops_it(tmp_path: Path, signum: signal.Signals) -> None:
    (tmp_path / "digits.yaml").write_text(DIGITS)
    command = [sys.executable, "-c", RUN, "run", "digits.yaml"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=tmp_path, env=ENV, text=True, **streams) as process:
        while not (tmp_path / "sweeps/digits/sweep.yaml").exists():
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signum)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "tune resume digits" in said
    assert "starting Ray" not in said
