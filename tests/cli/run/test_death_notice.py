"""A driver that is killed leaves one line that names the next command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = """
import os, sys
from pathlib import Path
from results.paths import SweepPaths
from tests.tuning.simulate import make_spec
from tuning.cli.run.death_notice import DeathNotice
from tuning.controller.events import SessionStart

notice = DeathNotice()
notice.session_started(SessionStart(SweepPaths(Path(sys.argv[1])), make_spec()))
if sys.argv[2] == "ends":
    notice.session_ended(None)
if sys.argv[2] == "explains":
    notice.cancel()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["ends", "explains", "is killed"])
def test_line_after_a_kill_only(tmp_path: Path, how: str) -> None:
    sweep = tmp_path / "some sweeps" / "digits"
    command = [sys.executable, "-c", CODE, str(sweep), how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expected = (
        "the driver of digits was killed, or ended by a second signal, or by Ray after the loss of "
        f"its cluster; continue with: tune resume '{sweep}'\n"
    )
    assert done.stderr == (expected if how == "is killed" else "")
