"""Tests the rungs of a sweep: would they have kept the trial that ends best?"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuning.search.schedulers.rung import Rung

_FOLLOW_UP_SHARE, _SCOUT_SHARE = 0.15, 0.08
"""Of all steps: those that may be spent on trials which their rung would not continue."""
_SCOUT_QUANTILES = (1.0, 0.6, 1.0, 0.8)
"""Ranks of scouts among the paused trials of the lowest rung, in turn; 1 is the worst."""
_SCOUTED_RUNG = 24
"""Trials at the lowest rung before the first scout."""
_OUTLIER = 3.0
"""Interquartile ranges below the median; a trial that is worse is no scout."""
_COMPLETE = 4
"""Complete trials after which a missed winner counts, though no complete trial was kept."""
_PAUSES, _RESUMES = 8, 4
"""While the rungs mislead, every 8th new trial pauses, and every 4th start resumes a trial."""
_MAX_RATIO = 0.97
"""Of a gain to the one before, so that an extrapolated curve flattens."""


@dataclass
class _Progress:
    """What is known of a trial.

    Attributes:
        step: of its last report.
        marks: (step, merit) of the first report at or beyond each third of the way to a rung.
        rung: at which it paused, or which it just passed; None between rungs.
        paused: whether it paused there.
        role: why it left its last rung: `promoted`, `scout` or `follow_up`.
        missed: rungs that it left although they had never kept it.
        estimate: extrapolated merit at `max_t`, from the last rung where that is possible.
    """

    step: int = 0
    marks: list[tuple[int, float]] = field(default_factory=list)
    rung: float | None = None
    paused: bool = False
    role: str = "promoted"
    missed: set[float] = field(default_factory=set)
    estimate: float | None = None


class RungCheck:
    """Finds out, with a small share of a sweep's steps, whether its rungs mislead.

    A rung *keeps* a trial that is at any time among its best `1 / reduction_factor`. The rungs
    mislead if the best complete trial left one that never kept it. Two kinds of trials leave such
    rungs: *scouts* from the lowest one, and *follow-ups*, whose extrapolated curve beats the best
    complete trial. Everything is counted when a trial reports, in running totals; replaying the
    reports gives the same state.

    Args:
        rungs: of the scheduler, by step.
        reduction_factor: of the scheduler.
        max_t: of the scheduler (steps).
    """

    def __init__(self, rungs: Mapping[float, Rung], reduction_factor: float, max_t: int) -> None:
        self._rungs, self._factor, self._max_t = rungs, reduction_factor, max_t
        self._lowest = min(rungs, default=math.inf)
        self._marks = sorted({m * k / 3 for m in rungs for k in (1, 2, 3)})
        self._kept: dict[float, set[str]] = {m: set() for m in rungs}
        self._trials: dict[str, _Progress] = {}
        self._spent = {"promoted": 0, "scout": 0, "follow_up": 0}
        self._scouts = self._started = self._resumed = 0  # the last two: while rungs mislead
        self._starting: set[str] = set()  # resumed, and has not reported since
        self._unpaused: set[str] = set()
        self._estimates: list[tuple[float, str]] = []  # of paused trials, ascending
        self._errors: list[float] = []  # estimates less final merits, ascending
        self._complete, self._one_was_kept = 0, False
        self._best: tuple[float, str] = -math.inf, ""

    @property
    def misleading(self) -> bool:
        """Whether the best complete trial would not have been kept."""
        if not (self._one_was_kept or self._complete >= _COMPLETE):
            return False
        winner = self._best[1]
        return any(winner not in self._kept[m] for m in self._trials[winner].missed)

    def on_report(self, trial_id: str, step: int, merit: float) -> bool:
        """Count a trial's report; False, and no change, for a step that it has reported before."""
        trial = self._trials.get(trial_id)
        if trial is not None and step <= trial.step:
            return False
        if trial is None:
            trial = self._trials[trial_id] = _Progress()
            self._admit(trial_id)
        self._leave_rung(trial_id, trial)
        self._spent[trial.role] += step - trial.step
        trial.step = step
        while len(trial.marks) < len(self._marks) and step >= self._marks[len(trial.marks)]:
            trial.marks.append((step, merit))
        return True

    def on_rung(self, trial_id: str, milestone: float) -> bool:
        """A trial that just reported was added to a rung. Returns whether it pauses there."""
        rung, trial = self._rungs[milestone], self._trials[trial_id]
        kept = promotable(rung, self._factor)
        if kept and rung.index(trial_id) < kept:
            self._kept[milestone].add(trial_id)
        if kept:
            self._kept[milestone].add(rung.at(kept - 1))
        trial.rung = milestone
        trial.paused = not (trial_id in self._unpaused and self.misleading)
        estimate = self._extrapolate(trial, milestone)
        if estimate is not None:
            trial.estimate = estimate
            if trial.paused:
                insort(self._estimates, (estimate, trial_id))
        return trial.paused

    def on_trial_resume(self, trial_id: str) -> None:
        """A paused trial starts."""
        if (trial := self._trials.get(trial_id)) is not None and trial.paused:
            self._starting.add(trial_id)
            self._forget_estimate(trial_id, trial)

    def on_trial_end(self, trial_id: str) -> None:
        """A trial has ended, perhaps while it was paused or starting."""
        if (trial := self._trials.get(trial_id)) is not None:
            self._starting.discard(trial_id)
            self._forget_estimate(trial_id, trial)

    def on_trial_complete(self, trial_id: str, merit: float) -> None:
        """A trial reached `max_t`."""
        trial = self._trials[trial_id]
        self._complete += 1
        self._one_was_kept |= not trial.missed
        self._best = max(self._best, (merit, trial_id), key=lambda best: best[0])
        if trial.estimate is not None:
            insort(self._errors, trial.estimate - merit)

    def follow_up(self) -> str | None:
        """The paused trial that would end best, if that beats the best complete trial."""
        if not self._complete or not self._estimates or not self._affords("follow_up"):
            return None
        estimate, trial_id = self._estimates[-1]
        return trial_id if estimate - self._bias() > self._best[0] else None

    def scout(self, waiting: list[str]) -> str | None:
        """A trial that tests the lowest rung.

        Args:
            waiting: paused trials of that rung, best first.
        """
        rung = self._rungs.get(self._lowest, Rung())
        if not self._complete or len(rung) < _SCOUTED_RUNG or not self._affords("scout"):
            return None
        usable = bisect_right(waiting, -_least_usable(rung), key=lambda t: -rung.merit(t))
        turn = self._scouts + sum(self._role(t) == "scout" for t in self._starting)
        quantile = _SCOUT_QUANTILES[turn % len(_SCOUT_QUANTILES)]
        return waiting[round(quantile * (usable - 1))] if usable else None

    def prefers_new(self) -> bool:
        """Whether a new trial should start although another one may be promoted."""
        resumed = self._resumed + len(self._starting)
        return self.misleading and _RESUMES * (resumed + 1) > self._started + resumed + 1

    def _admit(self, trial_id: str) -> None:
        """While rungs mislead, most new trials pass them."""
        if self.misleading:
            self._started += 1
            if self._started % _PAUSES:
                self._unpaused.add(trial_id)

    def _leave_rung(self, trial_id: str, trial: _Progress) -> None:
        if trial.rung is None:
            return
        trial.role = self._role(trial_id)
        if trial_id not in self._kept[trial.rung]:
            trial.missed.add(trial.rung)
        self._scouts += trial.role == "scout"
        self._resumed += trial.paused and self.misleading
        self._starting.discard(trial_id)
        self._forget_estimate(trial_id, trial)
        trial.rung, trial.paused = None, False

    def _role(self, trial_id: str) -> str:
        """The role of a trial that leaves its rung now."""
        trial = self._trials[trial_id]
        if trial.rung is None or not trial.paused or trial_id in self._kept[trial.rung]:
            return "promoted"
        return "scout" if trial.rung == self._lowest else "follow_up"

    def _affords(self, role: str) -> bool:
        """Whether more steps may be spent on such trials; those that just start count as begun."""
        share = _SCOUT_SHARE if role == "scout" else _FOLLOW_UP_SHARE
        starting = (t for t in self._starting if self._role(t) == role)
        ahead = sum(self._next_rung(t) - self._trials[t].step for t in starting)
        return self._spent[role] + ahead <= share * sum(self._spent.values())

    def _next_rung(self, trial_id: str) -> float:
        step = self._trials[trial_id].step
        return min((m for m in self._rungs if m > step), default=float(self._max_t))

    def _forget_estimate(self, trial_id: str, trial: _Progress) -> None:
        if trial.estimate is not None:
            at = bisect_left(self._estimates, (trial.estimate, trial_id))
            if self._estimates[at : at + 1] == [(trial.estimate, trial_id)]:
                del self._estimates[at]

    def _bias(self) -> float:
        """The median error of the estimates of complete trials, if they were too high."""
        count = len(self._errors)
        return max(0.0, self._errors[count // 2]) if count >= 3 else 0.0

    def _extrapolate(self, trial: _Progress, milestone: float) -> float | None:
        """The merit at `max_t` if gains shrink as between the last two thirds of the way.

        None if the trial did not report in each third.
        """
        thirds = [self._marks.index(milestone * k / 3) for k in (1, 2, 3)]
        (a, first), (b, second), (c, third) = (trial.marks[i] for i in thirds)
        if not a < b < c or not math.isfinite(third):
            return None
        before, gain = second - first, third - second
        if not (before > 0 and gain > 0):
            return third
        ratio = min(gain / before, _MAX_RATIO)
        count = (self._max_t - milestone) / (milestone / 3)
        return float(third + gain * ratio * (1 - ratio**count) / (1 - ratio))


def _least_usable(rung: Rung) -> float:
    """The lowest merit that is no outlier."""
    high, middle, low = (rung.merit(rung.at(len(rung) * k // 4)) for k in (1, 2, 3))
    return middle - _OUTLIER * (high - low)


def promotable(rung: Rung, reduction_factor: float) -> int:
    """How many trials of a rung may continue."""
    return math.floor(len(rung) / reduction_factor + 1e-9)
