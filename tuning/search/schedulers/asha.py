"""Asynchronous successive halving that stops, in one bracket or in several."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec
from tuning.search.schedulers.base import Decision, Scheduler, Scores
from tuning.search.schedulers.rung import Rung

Rungs = Mapping[float, Rung]
"""The rungs of a bracket, by their steps."""


class Asha(Scheduler):
    """Asynchronous successive halving, stopping (Li et al. 2020, "A System for Massively Parallel
    Hyperparameter Tuning").

    The first report at or beyond a rung is recorded there. The trial stops if it is not in the best
    `1 / reduction_factor` of the trials recorded there before. For trials that report between any
    two rungs, decisions equal those of one bracket of Ray Tune's `AsyncHyperBandScheduler`. Several
    objectives are ordered by non-domination, then by crowding
    (`results.analysis.pareto.scalar_merits`).
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        self._rungs: Rungs = {m: Rung() for m in spec.rung_steps}

    def rungs_of(self, trial_id: str) -> Rungs:
        """The rungs at which a trial is compared."""
        return self._rungs

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """STOP at a rung if the trial is not among the best; COMPLETE at `max_t`."""
        rungs = self.rungs_of(trial_id)
        if super().decide(trial_id, step, scores) is Decision.COMPLETE:
            return Decision.COMPLETE
        reached = max((milestone for milestone in rungs if step >= milestone), default=None)
        if reached is None or trial_id in (rung := rungs[reached]):
            return Decision.CONTINUE
        rung.add(trial_id, scores)
        cutoff = rung.percentile_of_others(trial_id, (1 - 1 / self._spec.reduction_factor) * 100)
        worse = cutoff is not None and rung.merit(trial_id) < cutoff
        return Decision.STOP if worse else Decision.CONTINUE


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
