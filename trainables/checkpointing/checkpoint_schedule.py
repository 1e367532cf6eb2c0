"""Decides when a trial saves a checkpoint: every n steps, before a pause, and at its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from results.records.trial import Report

if TYPE_CHECKING:
    from trainables.job import TrialJob


class CheckpointSchedule:
    """Follows the reports of one attempt, so every rank decides the same."""

    def __init__(self, job: TrialJob) -> None:
        self._job = job
        self._last_checkpoint, self._last_time = 0, 0.0

    def resumed(self, step: int) -> None:
        """Start from the checkpoint of this step."""
        self._last_checkpoint, self._last_time = step, float(step)

    def saved(self, step: int) -> None:
        """Record that a checkpoint of this step was saved."""
        self._last_checkpoint = step

    def may_pause(self, report: Report) -> bool:
        """Whether the scheduler may pause the trial here, so that it needs a checkpoint.

        Call it before `is_due`, which advances the clock.
        """
        now = self._job.retention.time(report)
        return any(self._last_time < rung <= now for rung in self._job.rungs)

    def is_due(self, report: Report) -> bool:
        """Whether enough steps or a rung have passed. Call it once per report."""
        before, self._last_time = self._last_time, self._job.retention.time(report)
        if self._job.retention.passes_rung(before, self._last_time):
            return True
        return report.step - self._last_checkpoint >= self._job.checkpoint_every

    def is_finite(self, report: Report) -> bool:
        """Whether the metric is finite. Diverged weights are never saved."""
        return math.isfinite(report.metrics.get(self._job.retention.metric, 0.0))
