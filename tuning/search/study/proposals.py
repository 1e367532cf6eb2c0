"""What is proposed: first what the sweep file lists, and nothing twice while there is more."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from optuna.trial import FrozenTrial

from search_spaces.spec.sweep import SweepSpec
from tuning.search.compatibility import is_finite, list_configurations
from tuning.search.optuna_domains import only_sample
from tuning.search.optuna_space import OptunaSpace
from tuning.search.priors import prior_point


class ListedPoints:
    """What to try before, or beside, the searcher's own proposals.

    It counts what was tried, so that the next point takes the same time after any number of trials.
    """

    def __init__(self, spec: SweepSpec, space: OptunaSpace) -> None:
        prior = prior_point(spec)
        points = [*spec.points, *([prior] if prior else ())]
        self._points = deque(space.encoded(point)[0] for point in points)
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


log = logging.getLogger(__name__)


class EarlierProposals:
    """The configurations of earlier proposals. None is proposed again before the space is used up.

    The values that a trial gets are compared. Optuna's samples may differ where quantisation makes
    the values equal, and in parameters that are not active.

    Args:
        spec: of the sweep.
        space: as Optuna has it.
        is_unique: whether that is so for a space with continuous parameters, too.
    """

    def __init__(self, spec: SweepSpec, space: OptunaSpace, *, is_unique: bool) -> None:
        self._spec, self._space = spec, space
        self._applies = is_unique or is_finite(spec)
        self._constants = {
            name: only_sample(dist) for name, dist in space.distributions.items() if dist.single()
        }
        self._own = set[str]()
        self._found: frozenset[str] = frozenset()

    def add(self, sampled: Mapping[str, Any]) -> None:
        """Add a proposal of the sweep, by Optuna's names; an incomplete one does not count."""
        if self._applies and (text := self._text_of(sampled)):
            self._own.add(text)
            if "_left" in self.__dict__ and self._left is not None:
                self._left.pop(text, None)

    def show_found(self, trials: Iterable[FrozenTrial]) -> None:
        """Set the trials of other sweeps, which count as proposals."""
        self._found = frozenset(self._text_of(trial.params) for trial in trials)

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether a configuration, by dotted name, was proposed before, and another one was not."""
        text = _text(params)
        return (text in self._own or text in self._found) and self._left != {}

    def holds_sample(self, sampled: Mapping[str, Any]) -> bool:
        """Whether the configuration of a sample of every parameter was proposed before."""
        params = self._space.params({**self._constants, **sampled})
        return params is not None and self.holds(params)

    def left(self) -> list[dict[str, Any]] | None:
        """The configurations that were not yet proposed; None if they are too many to list."""
        return None if self._left is None else list(self._left.values())

    @cached_property
    def _left(self) -> dict[str, dict[str, Any]] | None:
        """By text. Listed when the first configuration is about to be repeated."""
        listed = list_configurations(self._spec)
        if listed is None:
            return None
        by_text = {_text(params): params for params in listed}
        left = {t: p for t, p in by_text.items() if t not in self._own and t not in self._found}
        if not left:
            log.warning("all %d configurations of the space were tried: again", len(by_text))
        return left

    def _text_of(self, sampled: Mapping[str, Any]) -> str:
        """Empty if a driver that was killed had not written all, or if it is of another space."""
        with suppress(ValueError):
            params = self._space.params(sampled)
            return "" if params is None else _text(params)
        return ""


def _text(params: Mapping[str, Any]) -> str:
    return repr(sorted(params.items()))
