"""The trials at a rung in order, so that a report is compared without looking at all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from math import floor

from results.analysis.pareto import scalar_merits
from tuning.search.schedulers.base import Scores

_Place = tuple[float, int, str]
"""The negative merit of a trial, how many came before it, and its id: ascending, best first."""


class Rung:
    """The scores of trials at a rung, and their order: best first; ties in order of arrival.

    With several objectives every new trial can change the order of all others, so it is made again.
    """

    def __init__(self) -> None:
        self._scores: dict[str, Scores] = {}
        self._places: dict[str, _Place] = {}
        self._order: list[_Place] = []

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, trial_id: str) -> bool:
        return trial_id in self._scores

    def add(self, trial_id: str, scores: Scores) -> None:
        """Add a trial that is not there."""
        self._scores[trial_id] = scores
        if len(scores) == 1:
            place = self._places[trial_id] = -scalar_merits([scores])[0], len(self) - 1, trial_id
            insort(self._order, place)
            return
        merits = scalar_merits(list(self._scores.values()))
        self._order = sorted(
            (-m, i, t) for i, (m, t) in enumerate(zip(merits, self._scores, strict=True))
        )
        self._places = {place[-1]: place for place in self._order}

    def merit(self, trial_id: str) -> float:
        """A number to compare a trial with the others; higher is better."""
        return -self._places[trial_id][0]

    def index(self, trial_id: str) -> int:
        """How many trials are better, or equal and earlier."""
        return bisect_left(self._order, self._places[trial_id])

    def at(self, index: int) -> str:
        """The trial with so many better ones."""
        return self._order[index][-1]

    def place(self, trial_id: str) -> _Place:
        """A key that sorts trials of this rung, best first."""
        return self._places[trial_id]

    def percentile_of_others(self, trial_id: str, percent: float) -> float | None:
        """The merit below which so many percent of the others are, as `numpy.percentile` has it.

        None if there are no others.
        """
        others = len(self) - 1
        if not others:
            return None
        position = percent / 100 * (others - 1)
        before, part = floor(position), position - floor(position)
        low = self._ascending(before, trial_id)
        high = self._ascending(min(before + 1, others - 1), trial_id)
        # the arithmetic of numpy, to the last bit
        return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part

    def _ascending(self, number: int, without: str) -> float:
        """The merit with so many below it, of all trials but one."""
        last = len(self) - 1
        number += number >= last - self.index(without)
        return -self._order[last - number][0]
