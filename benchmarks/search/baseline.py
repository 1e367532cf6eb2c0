"""A baseline that every multi-fidelity method should beat: one epoch each, then the best."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.search.simulate import FULL_TRAININGS, Attempt, Contender
from benchmarks.search.tasks import Task, draw


class OneEpoch(Contender):
    """Half of the budget trains random configurations for one epoch each. The rest trains the best
    of them to the end, one after another (Bohdal et al., arXiv 2307.15422, with a fixed budget).
    """

    def __init__(self, task: Task, seed: int) -> None:
        self._task, self._rng = task, np.random.default_rng([seed, 1])
        self._left = FULL_TRAININGS * task.epochs // 2
        self.configs: dict[str, dict[str, Any]] = {}
        self._first: dict[str, float] = {}

    def next(self) -> Attempt | None:
        """A new configuration; later the best one that was not continued yet."""
        if self._left:
            self._left -= 1
            name = f"t{len(self.configs):04d}"
            self.configs[name] = draw(self._task.space, self._rng)
            return Attempt(name, self.configs[name])
        best = min(self._first, key=lambda name: self._first[name], default=None)
        if best is None:
            return None
        self._first.pop(best)
        return Attempt(best, self.configs[best], 1)

    def report(self, trial: str, epoch: int, error: float) -> bool:
        """A trial pauses after its first epoch."""
        if epoch == 1:
            self._first[trial] = error
        return epoch > 1
