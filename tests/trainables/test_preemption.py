"""A worker that is told to go leaves with a whole checkpoint; one that hangs leaves its stacks."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.checkpoint import newest_whole
from results.failures import Cause, Remedy, classify
from results.paths import TrialPaths
from tests.trainables.local import RecordingChannel, make_worker
from trainables.fit import in_one_line
from trainables.preemption import Preempted, asked_to_go, heed_sigterm, heed_sigterm_soon

ROOT = Path(__file__).parents[2]


@pytest.fixture
def heeding() -> Iterator[None]:
    restore = heed_sigterm()
    yield
    restore()


def save(folder: Path) -> None:
    (folder / "model.safetensors").write_text("weights")


def test_it_leaves_at_the_next_report_with_a_checkpoint(tmp_path: Path, heeding: None) -> None:
    channel = RecordingChannel()
    worker = make_worker(tmp_path, "digits", {}, channel=channel, checkpoint_every=100)
    worker.report(step=1, metrics={}, checkpoint=save)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Preempted, match="left after step 2") as e:
        worker.report(step=2, metrics={}, checkpoint=save)
    worker.close()
    newest = newest_whole(TrialPaths(tmp_path))
    assert newest is not None
    assert newest.step == 2
    failure = classify(f"rank 0: {in_one_line(e.value)}")
    assert (failure.remedy, failure.cause) == (Remedy.RETRY, Cause.PREEMPTION)
    with pytest.raises(Preempted):  # nothing begins here any more
        make_worker(tmp_path, "digits", {}, attempt=2).resume()


def test_its_last_report_is_its_end_all_the_same(tmp_path: Path, heeding: None) -> None:
    worker = make_worker(tmp_path, "digits", {})
    os.kill(os.getpid(), signal.SIGTERM)
    worker.report(step=1, metrics={}, checkpoint=save, final=True)
    assert TrialPaths(tmp_path).checkpoint_steps() == [1]


def test_a_second_sigterm_does_what_it_always_did(heeding: None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert asked_to_go()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_another_thread_can_ask_for_it(heeding: None) -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # uses up the fixture's handler
    thread = threading.Thread(target=heed_sigterm_soon)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


SILENT = """
import sys, time
from trainables.watchdog import Watchdog
watchdog = Watchdog(0.2)
watchdog.beat()
watchdog.pause()
print("alive", flush=True)
watchdog.beat()

def waits_for_ever():
    time.sleep(100)

waits_for_ever()
"""


def test_a_silent_rank_leaves_its_stacks_and_ends() -> None:
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
