"""When a checkpoint of a trial is due: every so many steps, before a pause, and at its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from results.records.trial import Report

if TYPE_CHECKING:
    from trainables.job import TrialJob


class CheckpointSchedule:
    """Follows one attempt; the same on every rank, as the reports are."""

    def __init__(self, job: TrialJob) -> None:
        self._job = job
        self._last_checkpoint, self._last_time = 0, 0.0

    def resumed(self, step: int) -> None:
        """The attempt goes on from the checkpoint of this step."""
        self._last_checkpoint, self._last_time = step, float(step)

    def saved(self, step: int) -> None:
        """A checkpoint of this step is made."""
        self._last_checkpoint = step

    def is_complete(self, report: Report) -> bool:
        """Whether the trial is, for the scheduler."""
        return self._job.max_t is not None and self._job.retention.time(report) >= self._job.max_t

    def may_pause(self, report: Report) -> bool:
        """Whether the scheduler may pause the trial here: what continues it finds its checkpoint.

        Asked before `by_clock` moves the clock.
        """
        now = self._job.retention.time(report)
        return any(self._last_time < rung <= now for rung in self._job.rungs)

    def by_clock(self, report: Report) -> bool:
        """Whether enough steps went by, or a rung did; asked once for each report."""
        before, self._last_time = self._last_time, self._job.retention.time(report)
        if self._job.retention.passes_rung(before, self._last_time):
            return True
        return report.step - self._last_checkpoint >= self._job.checkpoint_every

    def is_sound(self, report: Report) -> bool:
        """Whether the weights are worth keeping: a model that diverged is none to go on from."""
        return math.isfinite(report.metrics.get(self._job.retention.metric, 0.0))
