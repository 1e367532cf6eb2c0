import errno
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import results.storage.retry
import trainables.checkpointing.saver
from results.checkpoints.cleanup import prune
from results.checkpoints.commit import commit
from results.checkpoints.retention import Retention
from results.paths import TrialPaths
from results.records.trial import Report
from tests.trainables.local import RecordingChannel, make_worker, newest_checkpoint
from trainables.checkpointing.saver import Superseded
from trainables.job import Answer
from trainables.worker import Worker


class Watching(RecordingChannel):
    """Records which checkpoints exist at each report."""

    def __init__(self, folder: Path, answers: dict[int, Answer] | None = None) -> None:
        super().__init__(answers or {})
        self.paths = TrialPaths(folder)
        self.seen: dict[int, list[int]] = {}

    def report(self, report: Report) -> Answer:
        self.seen[report.step] = self.paths.checkpoint_steps()
        return super().report(report)


def saving(after: Callable[[], object] = lambda: None) -> Callable[[Path], Callable[[], None]]:
    """A save function whose write first calls `after`."""

    def save(folder: Path) -> Callable[[], None]:
        def write() -> None:
            after()
            (folder / "model.safetensors").write_text(folder.name)

        return write

    return save


def worker_of(folder: Path, channel: RecordingChannel, **options: object) -> Worker:
    options = {"checkpoint_every": 1, **options}
    return make_worker(folder, channel=channel, **options)


def test_async_checkpoint_does_not_block_training(tmp_path: Path) -> None:
    channel, written = Watching(tmp_path), threading.Event()
    worker = worker_of(tmp_path, channel)
    worker.report(step=1, metrics={}, checkpoint=saving(lambda: written.wait(60)))
    assert channel.paths.checkpoint_steps() == []
    written.set()
    worker.report(step=2, metrics={}, checkpoint=saving())
    assert channel.seen == {1: [], 2: [1]}
    worker.close()
    assert channel.paths.checkpoint_steps() == [1, 2]


def test_report_waits_for_the_previous_checkpoint(tmp_path: Path) -> None:
    channel = Watching(tmp_path)
    worker, lines = worker_of(tmp_path, channel), []
    reports = channel.paths.reports

    def look() -> None:
        lines.append(len(reports.read_text().splitlines()))

    for step in (1, 2, 3):
        worker.report(step=step, metrics={}, checkpoint=saving(look))
    worker.close()
    assert lines == [1, 2, 3]
    assert all(before in channel.seen[before + 1] for before in (1, 2))


def test_sync_checkpoint_is_complete_before_the_report(tmp_path: Path) -> None:
    channel = Watching(tmp_path)
    worker = worker_of(tmp_path, channel, checkpoint_async=False)
    worker.report(step=1, metrics={}, checkpoint=saving())
    assert channel.seen == {1: [1]}


@pytest.mark.parametrize("answer", [Answer.STOP, Answer.PAUSE])
def test_stop_or_pause_saves_a_checkpoint(tmp_path: Path, answer: Answer) -> None:
    channel = Watching(tmp_path, {1: answer})
    worker = worker_of(tmp_path, channel, checkpoint_every=10)
    assert worker.report(step=1, metrics={}, checkpoint=saving()) is answer
    assert newest_checkpoint(tmp_path).step == 1


def test_final_report_comes_after_its_checkpoint(tmp_path: Path) -> None:
    channel = Watching(tmp_path)
    worker = worker_of(tmp_path, channel, checkpoint_every=10)
    worker.report(step=1, metrics={}, checkpoint=saving())
    worker.report(step=2, metrics={}, checkpoint=saving(), final=True)
    assert channel.seen == {1: [], 2: [2]}


def test_write_error_is_raised_at_the_next_report(tmp_path: Path) -> None:
    def broken() -> None:
        raise OSError("no room")

    channel = Watching(tmp_path)
    worker = worker_of(tmp_path, channel)
    worker.report(step=1, metrics={}, checkpoint=saving(broken))
    with pytest.raises(OSError, match="no room"):
        worker.report(step=2, metrics={}, checkpoint=saving())
    worker.close()
    assert channel.paths.checkpoint_steps() == []
    assert list(channel.seen) == [1]


def test_transient_storage_error_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results.storage.retry, "FIRST_PAUSE_S", 0.001)
    flakes = iter([OSError(errno.ESTALE, "moved"), OSError(errno.EIO, "flaked")])

    def flaky() -> None:
        for flake in flakes:
            raise flake

    channel = Watching(tmp_path)
    worker = worker_of(tmp_path, channel)
    worker.report(step=1, metrics={}, checkpoint=saving(flaky))
    worker.close()
    assert next(flakes, None) is None
    assert channel.paths.checkpoint_steps() == [1]


def test_orphan_commits_no_checkpoint(tmp_path: Path) -> None:
    channel, superseded = Watching(tmp_path), threading.Event()
    worker = worker_of(tmp_path, channel)
    worker.report(step=1, metrics={}, checkpoint=saving(lambda: superseded.wait(60)))
    channel.paths.attempt(2).mkdir(parents=True)
    superseded.set()
    with pytest.raises(Superseded):
        worker.report(step=2, metrics={})
    assert channel.paths.checkpoint_steps() == []


def test_damaged_checkpoint_does_not_replace_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Watching(tmp_path)
    worker = worker_of(tmp_path, channel, retention=Retention(newest=1))

    def worn(folder: Path, final: Path, *, step: int) -> None:
        commit(folder, final, step=step)
        if step == 2:
            (final / "model.safetensors").write_text("#" * len(folder.name))

    monkeypatch.setattr(trainables.checkpointing.saver, "commit", worn)
    for step, left in [(1, [1]), (2, [1, 2]), (3, [3])]:
        worker.report(step=step, metrics={}, checkpoint=saving())
        worker.saver.drain()
        assert channel.paths.checkpoint_steps() == left
    worker.close()


def test_report_does_not_wait_for_the_deletion_of_old_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, go_on = Watching(tmp_path), threading.Event()
    worker = worker_of(tmp_path, channel, retention=Retention(newest=1), checkpoint_every=2)

    def slowly(paths: TrialPaths, keep: int, *, protected: Collection[int]) -> None:
        assert go_on.wait(60)
        prune(paths, keep, protected=protected)

    monkeypatch.setattr(trainables.checkpointing.saver, "prune", slowly)
    for step in (1, 2, 3):  # step 2 is saved, and report 3 waits for it
        worker.report(step=step, metrics={}, checkpoint=saving())
    assert channel.seen[3] == [2]
    go_on.set()
    worker.close()
    assert channel.paths.checkpoint_steps() == [2]


def test_diverged_model_is_not_saved(tmp_path: Path) -> None:
    channel = Watching(tmp_path, {2: Answer.STOP})
    worker = worker_of(tmp_path, channel, retention=Retention(metric="loss"))
    worker.report(step=1, metrics={"loss": 1.0}, checkpoint=saving())
    worker.report(step=2, metrics={"loss": float("nan")}, checkpoint=saving(), final=True)
    assert channel.paths.checkpoint_steps() == [1]


def test_retention_keeps_the_best_and_the_rungs(tmp_path: Path) -> None:
    keep = Retention(newest=1, best=1, metric="loss", rungs=(3.0,))
    channel = Watching(tmp_path)
    worker = worker_of(tmp_path, channel, retention=keep, checkpoint_every=2)
    for step, loss in enumerate([5.0, 1.0, 4.0, 3.0, 2.0, 6.0, 7.0], 1):
        worker.report(step=step, metrics={"loss": loss}, checkpoint=saving())
    worker.close()
    assert channel.paths.checkpoint_steps() == [2, 3, 7]
