"""Configurations that the sweep file lists: its `points`, and the points of its grids."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial

from search_spaces.spec.sweep import SweepSpec
from tuning.search.optuna_space import OptunaSpace


class ListedPoints:
    """What to try before, or beside, the searcher's own proposals."""

    def __init__(self, spec: SweepSpec, space: OptunaSpace) -> None:
        self._space = space
        self._points = deque(spec.points)
        self._grid = spec.grid_points()

    def next(self, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        """Parameters of the next proposal by dotted name, given the sweep's trials so far; empty if
        the searcher is free.
        """
        return self._untried_point(trials) or self._grid_point(trials)

    def _untried_point(self, trials: Sequence[FrozenTrial]) -> dict[str, Any] | None:
        """The first of the sweep's `points` that no trial has."""
        while self._points:
            wanted = self._space.encoded(self._points[0])[0].items()
            if not any(wanted <= t.params.items() for t in trials):
                return self._points[0]
            self._points.popleft()
        return None

    def _grid_point(self, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
        """The first of the grid points with the fewest trials, including added ones."""
        if len(self._grid) == 1:
            return self._grid[0]
        grid = [self._space.encoded(point)[0] for point in self._grid]
        names = {frozenset(point) for point in grid}
        tried = Counter(
            frozenset((name, trial.params[name]) for name in named)
            for trial in trials
            for named in names
            if named <= trial.params.keys()
        )
        times = [tried[frozenset(point.items())] for point in grid]
        return self._grid[times.index(min(times))]
