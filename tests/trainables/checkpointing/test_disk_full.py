from __future__ import annotations

from pathlib import Path

import pytest

from results.records.failures import Remedy, classify
from results.trial_paths import TrialPaths
from tests.trainables.local import newest_checkpoint, run_python
from trainables.checkpointing.saver import is_full, retry_when_full

LIMITED = """
import logging, resource, sys, time
from pathlib import Path
from trainables.checkpointing.saver import DiskFullError
from trainables.checkpointing.saver import Saver
from trainables.job import TrialJob

logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
room = iter(sys.argv[2].split(","))
pauses = []

def pause(seconds):
    pauses.append(seconds)
    limit(int(next(room)))

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

time.sleep = pause
job = TrialJob("t0000", sys.argv[1], "", {}, 0, 1, "", 1, wait_for_room_s=float(sys.argv[3]))
job.paths.attempt(1).mkdir(parents=True)
saver = Saver(job, 0, 1)

def save(folder):
    return lambda: (folder / "weights").write_bytes(b"w" * 5000)

limit(10_000)
saver.begin(1, save, lambda: None)
saver.wait()
limit(1_000)
try:
    saver.begin(2, save, lambda: None)
    saver.wait()
except DiskFullError as e:
    print("DiskFullError:", e)
print(job.paths.checkpoint_steps(), pauses)
"""


@pytest.mark.parametrize(
    ("room", "wait_s", "step", "told"),
    [("1000,100,10000", 600.0, 2, "[1, 2] [1.0, 2.0, 4.0]"), ("", 0.0, 1, "[1] []")],
)
def test_disk_full_waits_for_room_for_a_limited_time(
    tmp_path: Path, room: str, wait_s: float, step: int, told: str
) -> None:
    command = "-B", "-c", LIMITED, tmp_path, room, str(wait_s)
    said, done = run_python(*command).splitlines()
    assert "step 2: the disk is full, the one before has 5000 bytes, " in said
    assert f"{tmp_path / 'checkpoints'} has " in said
    assert done == told
    assert newest_checkpoint(tmp_path).step == step
    if step == 2:
        assert said.endswith("waiting up to 600 s for free space")
    else:
        assert "(checkpoint.wait_for_room)" in said
        assert classify(f"rank 0: {said}").remedy is Remedy.FAIL_TRIAL


def test_disk_full_raises_other_errors_at_once(tmp_path: Path) -> None:
    def broken() -> None:
        raise ValueError("nothing to do with the disk")

    with pytest.raises(ValueError, match="nothing to do"):
        retry_when_full(broken, TrialPaths(tmp_path), 1, 600.0)


def test_is_full_knows_errors_of_each_library(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as full, open("/dev/full", "wb") as f:
        f.write(b"x" * 100_000)
    assert is_full(full.value)
    assert is_full(RuntimeError("I/O error: No space left on device (os error 28)"))
    assert not is_full(OSError("AWS Error NETWORK_CONNECTION"))
