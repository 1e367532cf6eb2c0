"""Which checkpoints of a trial stay: the newest, the best, and those of each rung."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from results.records.trial import Report


@dataclass(frozen=True)
class Retention:
    """What is kept of a trial's checkpoints.

    Attributes:
        newest: how many of the newest whole ones, at least 1.
        best: how many of the best by the metric.
        metric, mode: what best means; `min` or `max`.
        rungs: steps of the scheduler's clock at which trials are compared; the first checkpoint at
            or after each stays.
        clock: the metric that the scheduler counts by, where a trial reports it.
    """

    newest: int = 2
    best: int = 0
    metric: str = ""
    mode: str = "min"
    rungs: tuple[float, ...] = ()
    clock: str = "step"

    @property
    def needs_reports(self) -> bool:
        """Whether anything but the newest is kept, for which the reports have to be looked at."""
        return self.best > 0 or bool(self.rungs)

    def protected(self, steps: Sequence[int], reports: Mapping[int, Report]) -> frozenset[int]:
        """Steps that stay although they are not among the newest.

        Args:
            steps: that have a checkpoint, ascending.
            reports: by step.
        """
        return self._best(steps, reports) | self._at_rungs(steps, reports)

    def passes_rung(self, before: float, now: float) -> bool:
        """Whether the clock has come to a rung since `before`."""
        return any(before < rung <= now for rung in self.rungs)

    def _best(self, steps: Sequence[int], reports: Mapping[int, Report]) -> frozenset[int]:
        sign = 1 if self.mode == "min" else -1
        values = {s: reports[s].metrics.get(self.metric, math.nan) for s in steps if s in reports}
        finite = [(sign * v, s) for s, v in values.items() if math.isfinite(v)]
        return frozenset(step for _, step in sorted(finite)[: self.best])

    def _at_rungs(self, steps: Sequence[int], reports: Mapping[int, Report]) -> frozenset[int]:
        kept: set[int] = set()
        for rung in self.rungs:
            reached = (s for s in steps if s in reports and self.time(reports[s]) >= rung)
            kept.update(list(reached)[:1])
        return frozenset(kept)

    def time(self, report: Report) -> float:
        """What the scheduler's clock shows at a report."""
        return report.metrics.get(self.clock, report.step)
