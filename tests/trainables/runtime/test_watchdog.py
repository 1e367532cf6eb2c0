import subprocess
import sys
from pathlib import Path

from results.records.failures import Cause, Remedy, classify

ROOT = Path(__file__).parents[3]

SILENT = """
import sys, time
from trainables.runtime.watchdog import Watchdog
watchdog = Watchdog(0.2)
watchdog.heartbeat()
watchdog.suspend()
print("alive", flush=True)
watchdog.heartbeat()

def waits_for_ever():
    time.sleep(100)

waits_for_ever()
"""


def test_watchdog_writes_stacks_and_ends_a_silent_rank() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SILENT], cwd=ROOT, capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stdout) == (1, "alive\n")
    notice, end = done.stderr.split("Timeout (0:00:00")
    assert notice.startswith("no sign of life for 0 s; all threads:\n")
    assert all("in waits_for_ever" in part for part in (notice, end))
    failure = classify("rank 0: ActorDiedError: the actor died", done.stderr)
    assert failure.error.startswith("hung: ")
    assert (failure.remedy, failure.cause) == (Remedy.RETRY, Cause.BUG)
