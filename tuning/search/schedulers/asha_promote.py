"""Asynchronous successive halving that pauses and promotes trials, so that no work is lost."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping

from results.analysis.pareto import scalar_merits
from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec
from tuning.search.schedulers.base import Decision, Scheduler, Scores
from tuning.search.schedulers.rung import Rung
from tuning.search.schedulers.rung_check import RungCheck, promotable


class AshaPromote(Scheduler):
    """Every trial pauses at its next rung. It continues when it is among the best
    `1 / reduction_factor` of all trials that have reached the rung (Li et al. 2020, algorithm 2).

    Free resources go to the promotable trial of the highest rung, else to a new trial. At the end
    of a sweep that is too short for any promotion, the best trial continues until it is complete.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        self._rungs: dict[float, Rung] = {m: Rung() for m in spec.rung_steps}
        self._paused: dict[str, float] = {}
        self._waiting = {m: list[str]() for m in spec.rung_steps}  # paused ones, best first
        self._last: dict[str, int] = {}
        self._completed = False
        self._lowest = min(self._rungs, default=0.0)
        self._check: RungCheck | None = None
        if spec.check == "auto" and spec.max_t is not None:
            self._check = RungCheck(self._rungs, spec.reduction_factor, spec.max_t)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Every rung."""
        return tuple(math.ceil(m) for m in self._rungs)

    @property
    def misleading(self) -> bool:
        """See `RungCheck.misleading`."""
        return self._check is not None and self._check.misleading

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """PAUSE at the first report at or beyond a rung; COMPLETE at `max_t`."""
        if trial_id in self._paused and step <= self._last[trial_id]:
            return Decision.PAUSE
        self._last[trial_id] = step
        self._resume(trial_id)
        check = self._check if len(scores) == 1 else None
        merit = scalar_merits([scores])[0] if check else 0.0
        is_new = check is not None and check.on_report(trial_id, step, merit)
        if super().decide(trial_id, step, scores) is Decision.COMPLETE:
            self._completed = True
            if check and is_new:
                check.on_trial_complete(trial_id, merit)
            return Decision.COMPLETE
        reached = max((m for m in self._rungs if step >= m), default=None)
        if reached is None or trial_id in self._rungs[reached]:
            return Decision.CONTINUE
        self._rungs[reached].add(trial_id, scores)
        if check and not check.on_rung(trial_id, reached):
            return Decision.CONTINUE
        self._paused[trial_id] = reached
        self._wait(trial_id, reached, several=len(scores) > 1)
        return Decision.PAUSE

    def on_trial_resume(self, trial_id: str) -> None:
        """The trial runs; it cannot be promoted until it pauses again."""
        if self._check:
            self._check.on_trial_resume(trial_id)
        self._resume(trial_id)

    def on_trial_complete(self, trial_id: str) -> None:
        """The trial cannot be promoted any more; its scores stay in the rungs."""
        if self._check:
            self._check.on_trial_end(trial_id)
        self._resume(trial_id)

    def _wait(self, trial_id: str, milestone: float, *, several: bool) -> None:
        waiting, place = self._waiting[milestone], self._rungs[milestone].place
        insort(waiting, trial_id, key=place)
        if several:  # the order of the others may have changed
            waiting.sort(key=place)

    def _resume(self, trial_id: str) -> None:
        if (milestone := self._paused.pop(trial_id, None)) is not None:
            self._waiting[milestone].remove(trial_id)

    def next_to_resume(self, *, more: bool, idle: bool) -> str | None:
        """A trial that tests the rungs, else the best promotable one of the highest rung."""
        check = self._check
        if check and (
            tested := check.follow_up() or check.scout(self._waiting.get(self._lowest, []))
        ):
            return tested
        if not (check and more and check.prefers_new()) and (best := self._promotable()):
            return best
        if idle and not more and not self._completed and self._paused:
            return self._waiting[max(self._paused.values())][0]
        return None

    def _promotable(self) -> str | None:
        for milestone in sorted(self._rungs, reverse=True):
            rung, waiting = self._rungs[milestone], self._waiting[milestone]
            if waiting and rung.index(waiting[0]) < promotable(rung, self._spec.reduction_factor):
                return waiting[0]
        return None
