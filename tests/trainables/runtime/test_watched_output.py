"""A process of user code that neither reports nor prints is ended."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_only_a_silent_process_is_ended(tmp_path: Path) -> None:
    started = {}
    for kind in ("prints", "reports", "silent"):  # at once: each takes seconds
        (tmp_path / kind).mkdir()
        log = str(tmp_path / kind / "rank_0.log")
        program = [sys.executable, "-c", WATCHED.format(limit=LIMIT_S), log, kind]
        started[kind] = subprocess.Popen(program, cwd=ROOT)
    ended = {kind: process.wait(timeout=100) for kind, process in started.items()}
    returned = {kind for kind in started if (tmp_path / kind / "returned").exists()}
    assert returned == {kind for kind, code in ended.items() if code == 0} == {"prints", "reports"}
    text = (tmp_path / "silent" / "rank_0.log").read_text()
    assert "no sign of life for" in text
    assert re.search(r"^Timeout \(0:00:0", text, re.MULTILINE)
    assert "<string>" in text
