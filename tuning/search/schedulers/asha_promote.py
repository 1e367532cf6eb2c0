"""Asynchronous successive halving that pauses and promotes trials, so that no work is lost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from results.analysis.pareto import scalar_merits
from search_spaces.domains.domain import Domain
from search_spaces.spec.sweep import SchedulerSpec
from tuning.search.schedulers.base import Decision, Rung, Scheduler, Scores


class AshaPromote(Scheduler):
    """Every trial pauses at its next rung. It continues when it is among the best
    `1 / reduction_factor` of all trials that have reached the rung (Li et al. 2020, algorithm 2).

    Free resources go to the promotable trial of the highest rung, else to a new trial. At the end
    of a sweep that is too short for any promotion, the best trial continues until it is complete.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        self._rungs: dict[float, Rung] = {m: {} for m in spec.rung_steps}
        self._orders: dict[float, list[str]] = {}
        self._paused: dict[str, float] = {}
        self._last: dict[str, int] = {}
        self._completed = False

    @property
    def rungs(self) -> tuple[int, ...]:
        """Every rung."""
        return tuple(math.ceil(m) for m in self._rungs)

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """PAUSE at the first report at or beyond a rung; COMPLETE at `max_t`."""
        if trial_id in self._paused and step <= self._last[trial_id]:
            return Decision.PAUSE
        self._last[trial_id] = step
        self._paused.pop(trial_id, None)
        if super().decide(trial_id, step, scores) is Decision.COMPLETE:
            self._completed = True
            return Decision.COMPLETE
        reached = max((m for m in self._rungs if step >= m), default=None)
        if reached is None or trial_id in self._rungs[reached]:
            return Decision.CONTINUE
        self._rungs[reached][trial_id] = scores
        self._orders.pop(reached, None)
        self._paused[trial_id] = reached
        return Decision.PAUSE

    def on_trial_resume(self, trial_id: str) -> None:
        """The trial runs; it cannot be promoted until it pauses again."""
        self._paused.pop(trial_id, None)

    def on_trial_complete(self, trial_id: str) -> None:
        """The trial cannot be promoted any more; its scores stay in the rungs."""
        self._paused.pop(trial_id, None)

    def next_to_resume(self, *, more: bool, idle: bool) -> str | None:
        """The best promotable trial of the highest rung that has one."""
        for milestone in sorted(self._rungs, reverse=True):
            best = self._best(milestone)
            promoted = best[: math.floor(len(best) / self._spec.reduction_factor + 1e-9)]
            if found := next((t for t in promoted if self._paused.get(t) == milestone), None):
                return found
        if idle and not more and not self._completed and self._paused:
            highest = max(self._paused.values())
            return next(t for t in self._best(highest) if self._paused.get(t) == highest)
        return None

    def _best(self, milestone: float) -> list[str]:
        """The trials of a rung, best first; ties in order of arrival."""
        if milestone not in self._orders:
            rung = self._rungs[milestone]
            merit = dict(zip(rung, scalar_merits(list(rung.values())), strict=True))
            self._orders[milestone] = sorted(rung, key=lambda t: -merit[t])
        return self._orders[milestone]
