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
from results.records.trial import Report
from results.trial_paths import TrialPaths
from tests.trainables.local import RecordingChannel, make_worker, newest_checkpoint
from trainables.checkpointing.saver import Superseded
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
