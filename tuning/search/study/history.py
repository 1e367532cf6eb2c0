"""The trials that TPE learns from: all of a short sweep, a bounded number of a long one.

It keeps them itself. Optuna's storage makes a list of all trials for each proposal, and TPE makes a
kernel of each, so that a proposal would take longer with every trial.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState, create_trial

from tuning.search.evidence import ScoreCurve
from tuning.search.optuna_space import Sampled

MOST_TRIALS = 500
"""Trials that a proposal learns from: the best tenth, and the newest ones of the others."""
_Rank = tuple[int, float, int]


class History:
    """The sweep's trials, and the order of those that have reported.

    A trial is the better, the more levels it has reached, then by its value at the last of them. So
    what is visible depends only on the trials and their curves, also after a resume.

    Args:
        levels: steps at which trials are compared, ascending; empty if none is stopped.
        most: trials that are visible at once.
        best: of these, those that are so for their rank. TPE's good group has 25. More of them
            would thin out the group that it keeps away from.
    """

    def __init__(self, levels: Sequence[float], most: int, best: int) -> None:
        self._levels, self._most, self._best = levels, most, best
        self._trials: dict[int, FrozenTrial] = {}
        self._numbers: list[int] = []
        self._ranks: dict[int, _Rank] = {}
        self._ranked: list[_Rank] = []

    def put(self, trial: FrozenTrial) -> None:
        """Add a trial, or replace what is known of it, apart from its curve."""
        if trial.number not in self._trials:
            insort(self._numbers, trial.number)
        self._trials[trial.number] = trial

    def begin(self, number: int, sampled: Sampled) -> None:
        """Add a trial that runs from now on."""
        params = {name: value for name, (value, _) in sampled.items()}
        distributions = {name: distribution for name, (_, distribution) in sampled.items()}
        self._make(number, state=TrialState.RUNNING, params=params, distributions=distributions)

    def end(
        self,
        number: int,
        reported: Iterable[tuple[int, float]],
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """A trial that began here has ended."""
        began = self._trials[number]
        outcome = {"state": state, "values": values, "intermediate_values": dict(reported)}
        self._make(number, params=began.params, distributions=began.distributions, **outcome)

    def _make(self, number: int, **attributes: Any) -> None:
        trial = create_trial(**attributes)
        trial.number = trial._trial_id = number
        self.put(trial)

    def rank(self, number: int, curve: ScoreCurve) -> None:
        """A trial has reported: its curve so far."""
        known = self._ranks.pop(number, None)
        if known is not None:
            del self._ranked[bisect_left(self._ranked, known)]
        rank = self._rank(number, curve)
        self._ranks[number] = rank
        insort(self._ranked, rank)

    def _rank(self, number: int, curve: ScoreCurve) -> _Rank:
        last = max(curve)
        reached = sum(level <= last for level in self._levels)
        if not reached:
            return 0, curve[last], -number
        level = self._levels[reached - 1]
        return reached, curve[min(step for step in curve if step >= level)], -number

    def visible(self, before: int) -> list[FrozenTrial]:
        """The trials that a proposal learns from, by number.

        Args:
            before: number of the proposal; later ones are not visible.
        """
        numbers: Iterable[int] = self._numbers
        if len(self._numbers) > self._most:
            best = {-rank[-1] for rank in self._ranked[-self._best :]}
            newest = (n for n in reversed(self._numbers) if n not in best)
            others = [n for _, n in zip(range(self._most - len(best)), newest, strict=False)]
            numbers = sorted(best.union(others))
        return [self._trials[n] for n in numbers if n < before and n in self._trials]
