"""Asynchronous Hyperband: several brackets of successive halving with different first rungs, in
case early values mislead.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec
from tuning.search.schedulers.asha import Asha, Rungs
from tuning.search.schedulers.rung import Rung


class Hyperband(Asha):
    """Hyperband (Li et al. 2018) with asynchronous brackets, as in Li et al. 2020.

    Bracket `b` has no rungs at the first `b` steps; the last bracket stops nothing. Trials are
    assigned to brackets in the order of their first reports, in proportion to Hyperband's sizes of
    brackets with equal budgets.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        steps = spec.rung_steps
        self._brackets: list[Rungs] = [
            {m: Rung() for m in steps[b:]} for b in range(len(steps) + 1)
        ]
        self._shares = [spec.reduction_factor ** len(b) / (len(b) + 1) for b in self._brackets]
        self._brackets_of_trials: dict[str, int] = {}
        self._held = [0] * len(self._brackets)

    def rungs_of(self, trial_id: str) -> Rungs:
        """Of the trial's bracket; a new trial gets the one that is furthest below its share."""
        if trial_id not in self._brackets_of_trials:
            lag = [(self._held[b] + 1) / share for b, share in enumerate(self._shares)]
            self._brackets_of_trials[trial_id] = bracket = lag.index(min(lag))
            self._held[bracket] += 1
        return self._brackets[self._brackets_of_trials[trial_id]]
