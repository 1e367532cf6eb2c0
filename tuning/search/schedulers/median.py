"""The median stopping rule."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from fractions import Fraction

from results.analysis.pareto import scalar_merits
from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec
from tuning.search.schedulers.base import Decision, Scheduler, Scores

_MIN_TRIALS = 3


class MedianStopping(Scheduler):
    """Stops a trial whose best value so far is below the median of the other trials' averages up to
    the same step (Golovin et al. 2017, "Google Vizier"); not before `grace_period`, and not if
    fewer than three others have reached the step. Older steps of a trial change nothing.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        self._curves: dict[str, _Curve] = {}
        self._steps: list[int] = []
        self._averages: dict[int, list[float]] = {}

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """STOP below the median; COMPLETE at `max_t`."""
        decision = super().decide(trial_id, step, scores)
        curve = self._curves.setdefault(trial_id, _Curve())
        if curve.steps and step <= curve.steps[-1]:
            return decision
        median = _median(self._others(step))
        self._record(curve, step, scalar_merits([scores])[0])
        if decision is Decision.COMPLETE or step < self._spec.grace_period:
            return decision
        return Decision.STOP if curve.best < median else Decision.CONTINUE

    def _others(self, step: int) -> list[float]:
        """The averages, ascending, of all trials that have reached a step."""
        if step not in self._averages:
            known = (c.average(step) for c in self._curves.values() if c.covers(step))
            self._averages[step] = sorted(known)
            insort(self._steps, step)
        return self._averages[step]

    def _record(self, curve: _Curve, step: int, value: float) -> None:
        if curve.steps:
            begin, end = bisect_right(self._steps, curve.steps[-1]), bisect_left(self._steps, step)
            for passed in self._steps[begin:end]:
                insort(self._averages[passed], curve.means[-1])
        curve.add(step, value)
        insort(self._averages[step], curve.means[-1])


class _Curve:
    """A trial's steps, the average of its values up to each, and the best value."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.means: list[float] = []
        self.best = -math.inf
        self._total = Fraction()  # exact: the average of equal values is that value

    def add(self, step: int, value: float) -> None:
        self._total += Fraction(value)
        self.steps.append(step)
        self.means.append(float(self._total / len(self.steps)))
        self.best = max(self.best, value)

    def covers(self, step: int) -> bool:
        return bool(self.steps) and self.steps[0] <= step <= self.steps[-1]

    def average(self, step: int) -> float:
        return self.means[bisect_right(self.steps, step) - 1]


def _median(ascending: Sequence[float]) -> float:
    """Minus infinity if there are too few values."""
    if len(ascending) < _MIN_TRIALS:
        return -math.inf
    middle = len(ascending) // 2
    return (ascending[middle] + ascending[~middle]) / 2
