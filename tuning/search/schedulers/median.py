"""The median stopping rule."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from results.pareto import merits
from search_spaces.domains import Domain
from search_spaces.schema import SchedulerSpec
from tuning.search.schedulers.base import Decision, Scheduler, Scores

_FEWEST = 3


class Median(Scheduler):
    """Stops a trial whose best value so far is below the median of the other trials' averages up to
    the same step (Golovin et al. 2017, "Google Vizier"); not before `grace_period`, nor while
    fewer than three others came that far.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        self._curves: dict[str, dict[int, float]] = {}

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """STOP below the median; COMPLETE at `max_t`."""
        curve = self._curves.setdefault(trial_id, {})
        known = step in curve
        curve.setdefault(step, merits([scores])[0])
        decision = super().decide(trial_id, step, scores)
        if decision is Decision.COMPLETE or known or step < self._spec.grace_period:
            return decision
        others = [
            statistics.fmean(v for s, v in other.items() if s <= step)
            for name, other in self._curves.items()
            if name != trial_id and max(other) >= step and min(other) <= step
        ]
        if len(others) < _FEWEST or max(curve.values()) >= statistics.median(others):
            return Decision.CONTINUE
        return Decision.STOP
