"""How many trials may run at once now: machines leave a cluster and join it during a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from search_spaces.schema import ResourcesSpec
from tuning.execution.placement import Node, Placement, room

_LOOK_S = 5.0
IDLE_S = 60.0
"""Seconds without a trial after which processes are given back to the cluster."""


class Capacity:
    """Follows the cluster, looking at it every few seconds.

    Args:
        resources: as the sweep asks for them.
        placement: how the sweep was placed at its start.
        look: gives the machines there are.
        clock: seconds.
    """

    def __init__(
        self,
        resources: ResourcesSpec,
        placement: Placement,
        look: Callable[[], Sequence[Node]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resources, self._gpus = resources, placement.gpus_per_worker
        self._look, self._clock = look, clock
        self._looked, self._room = clock(), placement.fits
        self._cap: int | None = None
        self._used: float | None = None

    def trials(self) -> int:
        """Trials at once: at least one, so that a cluster with no room is found out by trying."""
        if self._clock() - self._looked >= _LOOK_S:
            now = room(self._resources, self._gpus, self._look())
            self._cap = self._cap if now == self._room else None
            self._looked, self._room = self._clock(), now
        wanted = self._resources.concurrency
        limits = [self._room, *([] if wanted == "auto" else [wanted])]
        return max(1, min([*limits, *([] if self._cap is None else [self._cap])]))

    def no_room_for_more_than(self, trials: int) -> None:
        """Somebody else holds a part of the cluster: try no more until it changes."""
        self._cap = trials

    def used(self) -> None:
        """A trial was started or ended."""
        self._used = self._clock()

    @property
    def idle(self) -> bool:
        """Whether no trial was started or ended for a while, so that free processes are unused."""
        return self._used is not None and self._clock() - self._used >= IDLE_S
