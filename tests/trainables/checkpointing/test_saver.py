from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import results.storage.retry
import trainables.checkpointing.saver
from results.checkpoints.binding import Binding
from results.checkpoints.cleanup import prune
from results.checkpoints.commit import Manifest, commit
from results.checkpoints.retention import Retention
from results.records.failures import Remedy, classify
from results.records.trial import Report
from results.trial_paths import TrialPaths
from tests.trainables.local import RecordingChannel, make_worker, newest_checkpoint, run_python
from trainables.checkpointing.saver import Superseded, is_full, retry_when_full
from trainables.job import Answer
from trainables.worker import Worker


class WatchedTrial(RecordingChannel):
    """Records which checkpoints exist at each report."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.paths = TrialPaths(folder)
        self.seen: dict[int, list[int]] = {}

    def report(self, report: Report) -> Answer:
        self.seen[report.step] = self.paths.checkpoint_steps()
        return super().report(report)

    def start(self, **options: object) -> Worker:
        """A worker that saves at each report."""
        options = {"checkpoint_every": 1, **options}
        return make_worker(self.paths.root, channel=self, **options)


@pytest.fixture
def trial(tmp_path: Path) -> WatchedTrial:
    return WatchedTrial(tmp_path)


def saving(after: Callable[[], object] = lambda: None) -> Callable[[Path], Callable[[], None]]:
    """A save function whose write first calls `after`."""

    def save(folder: Path) -> Callable[[], None]:
        def write() -> None:
            after()
            (folder / "model.safetensors").write_text(folder.name)

        return write

    return save


def test_async_checkpoint_does_not_block_training(trial: WatchedTrial) -> None:
    worker, written = trial.start(), threading.Event()
    worker.report(step=1, metrics={}, checkpoint=saving(lambda: written.wait(60)))
    assert trial.paths.checkpoint_steps() == []
    written.set()
    worker.report(step=2, metrics={}, checkpoint=saving())
    assert trial.seen == {1: [], 2: [1]}
    worker.close()
    assert trial.paths.checkpoint_steps() == [1, 2]


def test_report_waits_for_the_previous_checkpoint(trial: WatchedTrial) -> None:
    worker, lines = trial.start(), []
    reports = trial.paths.reports

    def look() -> None:
        lines.append(len(reports.read_text().splitlines()))

    for step in (1, 2, 3):
        worker.report(step=step, metrics={}, checkpoint=saving(look))
    worker.close()
    assert lines == [1, 2, 3]
    assert all(before in trial.seen[before + 1] for before in (1, 2))


def test_sync_checkpoint_is_complete_before_the_report(trial: WatchedTrial) -> None:
    worker = trial.start(checkpoint_async=False)
    worker.report(step=1, metrics={}, checkpoint=saving())
    assert trial.seen == {1: [1]}


@pytest.mark.parametrize("answer", [Answer.STOP, Answer.PAUSE])
def test_stop_or_pause_saves_a_checkpoint(trial: WatchedTrial, answer: Answer) -> None:
    trial.answers = {1: answer}
    worker = trial.start(checkpoint_every=10)
    assert worker.report(step=1, metrics={}, checkpoint=saving()) is answer
    assert newest_checkpoint(trial.paths.root).step == 1


def test_final_report_comes_after_its_checkpoint(trial: WatchedTrial) -> None:
    worker = trial.start(checkpoint_every=10)
    worker.report(step=1, metrics={}, checkpoint=saving())
    worker.report(step=2, metrics={}, checkpoint=saving(), final=True)
    assert trial.seen == {1: [], 2: [2]}


def test_write_error_is_raised_at_the_next_report(trial: WatchedTrial) -> None:
    def broken() -> None:
        raise OSError("no room")

    worker = trial.start()
    worker.report(step=1, metrics={}, checkpoint=saving(broken))
    with pytest.raises(OSError, match="no room"):
        worker.report(step=2, metrics={}, checkpoint=saving())
    worker.close()
    assert trial.paths.checkpoint_steps() == []
    assert list(trial.seen) == [1]


def test_transient_storage_error_is_retried(
    trial: WatchedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results.storage.retry, "FIRST_PAUSE_S", 0.001)
    flakes = iter([OSError(errno.ESTALE, "moved"), OSError(errno.EIO, "flaked")])

    def flaky() -> None:
        for flake in flakes:
            raise flake

    worker = trial.start()
    worker.report(step=1, metrics={}, checkpoint=saving(flaky))
    worker.close()
    assert next(flakes, None) is None
    assert trial.paths.checkpoint_steps() == [1]


def test_orphan_commits_no_checkpoint(trial: WatchedTrial) -> None:
    worker, superseded = trial.start(), threading.Event()
    worker.report(step=1, metrics={}, checkpoint=saving(lambda: superseded.wait(60)))
    trial.paths.attempt(2).mkdir(parents=True)
    superseded.set()
    with pytest.raises(Superseded):
        worker.report(step=2, metrics={})
    assert trial.paths.checkpoint_steps() == []


def test_damaged_checkpoint_does_not_replace_the_previous_one(
    trial: WatchedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = trial.start(retention=Retention(newest=1))

    def worn(folder: Path, final: Path, *, step: int, binding: Binding) -> Manifest:
        made = commit(folder, final, step=step, binding=binding)
        if step == 2:
            (final / "model.safetensors").write_text("#" * len(folder.name))
        return made

    monkeypatch.setattr(trainables.checkpointing.saver, "commit", worn)
    for step, left in [(1, [1]), (2, [1, 2]), (3, [3])]:
        worker.report(step=step, metrics={}, checkpoint=saving())
        worker.saver.drain()
        assert trial.paths.checkpoint_steps() == left
    worker.close()


def test_report_does_not_wait_for_the_deletion_of_old_checkpoints(
    trial: WatchedTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = trial.start(retention=Retention(newest=1), checkpoint_every=2)
    go_on = threading.Event()

    def slowly(paths: TrialPaths, keep: int, *, protected: Collection[int]) -> None:
        assert go_on.wait(60)
        prune(paths, keep, protected=protected)

    monkeypatch.setattr(trainables.checkpointing.saver, "prune", slowly)
    for step in (1, 2, 3):  # step 2 is saved, and report 3 waits for it
        worker.report(step=step, metrics={}, checkpoint=saving())
    assert trial.seen[3] == [2]
    go_on.set()
    worker.close()
    assert trial.paths.checkpoint_steps() == [2]


def test_diverged_model_is_not_saved(trial: WatchedTrial) -> None:
    trial.answers = {2: Answer.STOP}
    worker = trial.start(retention=Retention(metric="loss"))
    worker.report(step=1, metrics={"loss": 1.0}, checkpoint=saving())
    worker.report(step=2, metrics={"loss": float("nan")}, checkpoint=saving(), final=True)
    assert trial.paths.checkpoint_steps() == [1]


def test_retention_keeps_the_best_and_the_rungs(trial: WatchedTrial) -> None:
    keep = Retention(newest=1, best=1, metric="loss", rungs=(3.0,))
    worker = trial.start(retention=keep, checkpoint_every=2)
    for step, loss in enumerate([5.0, 1.0, 4.0, 3.0, 2.0, 6.0, 7.0], 1):
        worker.report(step=step, metrics={"loss": loss}, checkpoint=saving())
    worker.close()
    assert trial.paths.checkpoint_steps() == [2, 3, 7]


def test_deleted_trial_stays_deleted(trial: WatchedTrial) -> None:
    worker = trial.start()
    worker.report(step=1, metrics={}, checkpoint=saving())
    worker.close()
    shutil.rmtree(trial.paths.root)
    with pytest.raises(Superseded):
        worker.report(step=2, metrics={}, checkpoint=saving())
    assert not trial.paths.root.exists()


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
