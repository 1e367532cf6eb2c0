"""Configurations that the sweep file lists: its `points`, and the points of its grids."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from search_spaces.spec.sweep import SweepSpec
from tuning.search.optuna_space import OptunaSpace


class ListedPoints:
    """What to try before, or beside, the searcher's own proposals.

    It counts what was tried, so that the next point takes the same time after any number of trials.
    """

    def __init__(self, spec: SweepSpec, space: OptunaSpace) -> None:
        self._points = deque(space.encoded(point)[0] for point in spec.points)
        self._grid = [space.encoded(point)[0] for point in spec.grid_points()]
        self._keys = [frozenset(point.items()) for point in self._grid]
        self._names = {frozenset(point) for point in self._grid}
        self._tried: Counter[frozenset[tuple[str, Any]]] = Counter()
        self._next = self._rounds = 0

    def add(self, sampled: Mapping[str, Any]) -> None:
        """Count a trial of the sweep.

        Args:
            sampled: its parameters as Optuna has them; empty as long as it has none.
        """
        if not sampled:
            return
        for point in [p for p in self._points if p.items() <= sampled.items()]:
            self._points.remove(point)
        for names in self._names:
            if names <= sampled.keys():
                self._tried[frozenset((name, sampled[name]) for name in names)] += 1

    def next(self) -> dict[str, Any]:
        """Optuna's parameters of the next proposal: the first of the sweep's `points` that no trial
        has, else the first of the grid points with the fewest trials, including added ones; empty
        if the searcher is free.
        """
        if self._points:
            return self._points[0]
        while len(self._grid) > 1 and self._tried[self._keys[self._next]] > self._rounds:
            self._next += 1
            if self._next == len(self._grid):
                self._next, self._rounds = 0, self._rounds + 1
        return self._grid[self._next]
