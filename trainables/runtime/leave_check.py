"""Whether a rank has to leave, asked of all ranks between two reports: every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from trainables.runtime.preemption import preemption_requested

_INTERVAL_S = 5.0
"""Clouds give 30 seconds; an exchange between ranks waits for their devices."""

SumAll = Callable[[Mapping[str, float]], Mapping[str, float]]


class LeaveCheck:
    """Counts steps. The ranks exchange what they know at the same steps, about every five seconds.

    Args:
        sum_all: the sums over all ranks of each value.
        world_size: number of ranks.
    """

    def __init__(self, sum_all: SumAll, world_size: int) -> None:
        self._sum_all, self._world_size = sum_all, world_size
        self._steps, self._every = 0, 1
        self._since = time.perf_counter()

    def step(self) -> bool:
        """Whether all ranks leave after this step; the same on every rank."""
        self._steps += 1
        if self._world_size == 1:
            return preemption_requested()
        if self._steps < self._every:
            return False
        now = time.perf_counter()
        said = {"leave": float(preemption_requested()), "seconds": now - self._since}
        summed = self._sum_all(said)
        each = summed["seconds"] / self._world_size / self._steps
        self._every = max(1, min(2 * self._every, int(_INTERVAL_S / max(each, 1e-9))))
        self._steps, self._since = 0, now
        return summed["leave"] > 0
