"""How many trials may run at once now, and how many workers each may have: machines leave a cluster
and join it during a sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

from results.records.machines import Machine
from tuning.controller.resources.placement import (
    Node,
    Placement,
    fair_share,
    max_concurrent_trials,
    worker_slots,
)

_LOOK_S = 5.0
IDLE_S = 60.0
"""Seconds without a trial after which processes are given back to the cluster."""


class Capacity:
    """Follows the cluster, looking at it every few seconds.

    Args:
        placement: how the sweep was placed at its start.
        look: gives the machines there are.
        unheld: gives what of them nobody holds, other users of the cluster included.
        clock: seconds.
    """

    def __init__(
        self,
        placement: Placement,
        look: Callable[[], Sequence[Node]],
        available_nodes: Callable[[], Sequence[Node]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.placement, self._resources = placement, placement.resources
        self._look, self._available_nodes, self._clock = look, available_nodes, clock
        self._looked, self._slots = clock(), placement.worker_slots
        self._nodes: Sequence[Node] | None = None
        self._cap: int | None = None
        self._used: float | None = None
        self._unused_since: float | None = None

    def worker_slots(self) -> int:
        """Workers at once."""
        if self._clock() - self._looked >= _LOOK_S:
            self._nodes = self._look()
            now = self._slots_of(self._nodes)
            self._cap = self._cap if now == self._slots else None
            self._looked, self._slots = self._clock(), now
        return self._slots if self._cap is None else min(self._cap, self._slots)

    def slots_excluding(self, machines: Collection[str]) -> int:
        """Workers at once on the other machines."""
        return self._slots_of([n for n in self._machines() if n.id not in machines])

    def present_machines(self, machines: Collection[Machine]) -> tuple[Machine, ...]:
        """Those that are part of the cluster, with the ids that they have now."""
        return tuple(
            {
                n.id: m.model_copy(update={"id": n.id})
                for m in machines
                for n in self._machines()
                if n.id == m.id or (n.address and n.address == m.address)
            }.values()
        )

    def _machines(self) -> Sequence[Node]:
        if self._nodes is None:
            self._nodes = self._look()
        return self._nodes

    def _slots_of(self, nodes: Sequence[Node]) -> int:
        return worker_slots(self._resources, self.placement.gpus_per_worker, nodes)

    def refresh_soon(self) -> None:
        """Something happened: the next question is answered by the cluster."""
        self._looked = -math.inf

    def trials(self) -> int:
        """Trials at once: at least one, so that a cluster with no room is found out by trying."""
        return max(1, max_concurrent_trials(self._resources, self.worker_slots()))

    def next_trial_workers(self, running: Collection[int]) -> int | None:
        """How many workers another trial would get beside those that run; None for no room.

        Args:
            running: workers of each trial that runs.
        """
        others = self.trials() - len(running)
        if others <= 0:
            return None
        fewest = self._resources.min_workers
        size = fair_share(self._resources, self.worker_slots() - sum(running), others)
        if size < fewest:
            return None if running else fewest
        return size

    def is_overcommitted(self, running: Collection[int]) -> bool:
        """Whether the trials that run hold, or wait for, more than there is by now.

        Where there is no room for a single one, it is not known whether there will be any.
        """
        return sum(running) > self.worker_slots() >= self._resources.min_workers

    def cap_workers(self, workers: int) -> None:
        """Somebody else holds a part of the cluster: try no more until it changes."""
        self._cap = workers

    def track_free_slots(self, running: Collection[int]) -> None:
        """Note since when there is room that no trial takes; called all the time."""
        if sum(running) >= self.worker_slots():
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = self._clock()

    def should_grow(self, workers: int, waiting: Callable[[], int]) -> bool:
        """Whether a trial of so many workers is to go on with more now; then no other is soon.

        Args:
            workers: of the trial.
            waiting: gives the number of workers that are up and have no trial.
        """
        if workers >= self._resources.max_workers or self._unused_since is None:
            return False
        if self._clock() - self._unused_since < self._resources.grow_after_s:
            return False
        self._unused_since = None
        return self._slots_of(self._available_nodes()) + waiting() > 0

    def mark_activity(self) -> None:
        """A trial was started or ended."""
        self._used = self._clock()

    @property
    def is_idle(self) -> bool:
        """Whether no trial was started or ended for a while, so that free processes are unused."""
        return self._used is not None and self._clock() - self._used >= IDLE_S
