"""Follows a user's loop through the functions of Ray Train that it calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.user_code.metrics import flat_numbers, warn_once

if TYPE_CHECKING:
    from ray.train import Checkpoint

    from trainables.runtime.sampler import UsageSampler


class LoopFunctions:
    """Replaces `ray.train.report` and `ray.train.get_checkpoint` in this worker.

    Args:
        functions: Ray Train's, of this worker.
        job: the attempt.
        rank: of this worker.
        on_restore: called when the loop first asks for its checkpoint.
        heartbeat: called when a report begins and when it ends.
        sampler: records what this worker uses; its steps are numbers of reports.
        on_report: called when a report begins.
    """

    def __init__(
        self,
        functions: Any,
        job: TrialJob,
        rank: int,
        on_restore: Callable[[], None],
        heartbeat: Callable[[], None],
        sampler: UsageSampler,
        on_report: Callable[[], None] = lambda: None,
    ) -> None:
        self._job, self._rank = job, rank
        self._on_restore, self._heartbeat, self._on_report = on_restore, heartbeat, on_report
        self._sampler, self._reported = sampler, 0
        self._report, self._get_checkpoint = functions.report, functions.get_checkpoint
        self._given = self._get_checkpoint() is not None
        self._asked = threading.Event()
        functions.report = self.report
        functions.get_checkpoint = self.get_checkpoint

    def get_checkpoint(self) -> Checkpoint | None:
        """See `ray.train.get_checkpoint`."""
        if not self._asked.is_set():
            self._asked.set()
            self._on_restore()
        found: Checkpoint | None = self._get_checkpoint()
        return found

    def report(self, metrics: dict[str, Any], *args: Any, **options: Any) -> None:
        """See `ray.train.report`. Sends numbers only.

        A checkpoint that lies elsewhere, such as in object storage, is copied to the trial's
        folder, where it is verified and from where the loop resumes.
        """
        from ray.train import CheckpointUploadMode

        if options.get("checkpoint_upload_mode") is CheckpointUploadMode.NO_UPLOAD:
            options["checkpoint_upload_mode"] = CheckpointUploadMode.SYNC
        self._heartbeat()
        self._on_report()
        self.check_restored()
        with self._sampler.times.of("report"):
            self._report(flat_numbers(metrics, self._job.retention.metric), *args, **options)
        self._heartbeat()
        self._reported += 1
        self._sampler.sample(self._reported)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the block as the loop; record what it used to its end."""
        self._sampler.times.started()
        try:
            yield
        finally:
            self._sampler.sample(self._reported, last=True)

    def check_restored(self) -> None:
        """Warn, in the log and by a file, if the loop goes on without its checkpoint."""
        if self._given and not self._asked.is_set() and not self._rank:
            warn_not_restored(self._job, "loop", "ray.train.get_checkpoint()")


def warn_not_restored(job: TrialJob, code: str, call: str) -> None:
    """Warn, once, in the log and by a file, that code did not ask for its checkpoint by a call."""
    warn_once(job, f"had a checkpoint, and the {code} did not ask for it by {call}; it began again")
