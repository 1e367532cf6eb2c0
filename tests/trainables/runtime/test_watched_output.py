"""A process of user code that neither reports nor prints is ended."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainables.local import ROOT

LIMIT_S = 3.0
WATCHED = """
import sys, time
from pathlib import Path
from trainables.launch.run_trial import output_to
from trainables.runtime.watchdog import Watchdog

log, kind = Path(sys.argv[1]), sys.argv[2]
watch = Watchdog({limit})
with output_to(log):
    watch.heartbeat()
    watch.follow(log)
    began = time.monotonic()
    while time.monotonic() - began < 2 * {limit}:
        time.sleep(0.1)
        if kind == "prints":
            print("working", flush=True)
        elif kind == "reports":
            watch.heartbeat()
    watch.close()
Path(log.parent, "returned").touch()
"""


@pytest.mark.parametrize("kind", ["prints", "reports", "silent"])
def test_only_a_silent_process_is_ended(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "rank_0.log"
    program = [sys.executable, "-c", WATCHED.format(limit=LIMIT_S), str(log), kind]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, timeout=100, check=False)
    assert (tmp_path / "returned").exists() is (kind != "silent"), done.stderr
    assert (done.returncode == 0) is (kind != "silent")
    if kind == "silent":
        text = log.read_text()
        assert "no sign of life for" in text
        assert re.search(r"^Timeout \(0:00:0", text, re.MULTILINE)
        assert "<string>" in text
