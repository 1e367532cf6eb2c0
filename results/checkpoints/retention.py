"""Selects the checkpoints of a trial to keep: the newest, the best, and one per rung."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.records.trial import Report


@dataclass(frozen=True)
class Retention:
    """Rules that select the checkpoints of a trial to keep.

    Attributes:
        newest: number of newest intact checkpoints, at least 1.
        best: number of best checkpoints by the metric.
        metric, mode: define the best ones; mode is `min` or `max`.
        rungs: times of the scheduler's clock at which trials are compared. The first checkpoint at
            or after each rung is kept.
        clock: the metric that is the scheduler's clock; the step if a trial does not report it.
    """

    newest: int = 2
    best: int = 0
    metric: str = ""
    mode: str = "min"
    rungs: tuple[float, ...] = ()
    clock: str = "step"

    @property
    def needs_reports(self) -> bool:
        """Whether the choice depends on reports, not only on steps."""
        return self.best > 0 or bool(self.rungs)

    def protected(self, steps: Sequence[int], reports: Mapping[int, Report]) -> frozenset[int]:
        """Steps to keep although they are not among the newest.

        Args:
            steps: all steps with a checkpoint, ascending.
            reports: by step.
        """
        sign = 1 if self.mode == "min" else -1
        values = {s: reports[s].metrics.get(self.metric, math.nan) for s in steps if s in reports}
        finite = [(sign * v, s) for s, v in values.items() if math.isfinite(v)]
        kept = {step for _, step in sorted(finite)[: self.best]}
        for rung in self.rungs:
            reached = (s for s in steps if s in reports and self.time(reports[s]) >= rung)
            kept.update(list(reached)[:1])
        return frozenset(kept)

    def passes_rung(self, before: float, now: float) -> bool:
        """Whether the clock passed a rung between `before` and `now`."""
        return any(before < rung <= now for rung in self.rungs)

    def time(self, report: Report) -> float:
        """Time of a report on the scheduler's clock."""
        return report.metrics.get(self.clock, report.step)
