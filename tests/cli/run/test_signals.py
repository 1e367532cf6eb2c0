"""A terminal that is gone: its SIGHUP stops a session, unless it is ignored."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

SESSION = """
import sys, time
from pathlib import Path
from tuning.cli.run.signals import StopOnSignal
folder = Path(sys.argv[1])
with StopOnSignal() as stop:
    (folder / "ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)
    print("summary", flush=True)
    (folder / "asked").write_text(str(stop.requested))
"""


@pytest.mark.parametrize(("wrapper", "asked"), [([], "True"), (["nohup"], "False")])
def test_hangup_stops_a_session_unless_ignored(
    tmp_path: Path, wrapper: list[str], asked: str
) -> None:
    ours, terminal = pty.openpty()
    command = ["setsid", "--ctty", *wrapper, sys.executable, "-c", SESSION, str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        os.close(terminal)
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.close(ours)  # the kernel sends SIGHUP
        (tmp_path / "go").touch()
        assert process.wait(60) == 0  # the summary is written, but not to the terminal
    assert (tmp_path / "asked").read_text() == asked
