"""How many trials may run at once now, and how many workers each may have: machines leave a cluster
and join it during a sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

from results.records.machines import Machine
from tuning.controller.resources.placement import Node, Placement, places, share, trials_at_once

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
        unheld: Callable[[], Sequence[Node]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.placement, self._resources = placement, placement.resources
        self._look, self._unheld, self._clock = look, unheld, clock
        self._looked, self._places = clock(), placement.places
        self._nodes: Sequence[Node] | None = None
        self._cap: int | None = None
        self._used: float | None = None
        self._unused_since: float | None = None

    def places(self) -> int:
        """Workers at once."""
        if self._clock() - self._looked >= _LOOK_S:
            self._nodes = self._look()
            now = self._places_of(self._nodes)
            self._cap = self._cap if now == self._places else None
            self._looked, self._places = self._clock(), now
        return self._places if self._cap is None else min(self._cap, self._places)

    def places_off(self, machines: Collection[str]) -> int:
        """Workers at once on the other machines."""
        return self._places_of([n for n in self._machines() if n.id not in machines])

    def there(self, machines: Collection[Machine]) -> tuple[Machine, ...]:
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

    def _places_of(self, nodes: Sequence[Node]) -> int:
        return places(self._resources, self.placement.gpus_per_worker, nodes)

    def look_soon(self) -> None:
        """Something happened: the next question is answered by the cluster."""
        self._looked = -math.inf

    def trials(self) -> int:
        """Trials at once: at least one, so that a cluster with no room is found out by trying."""
        return max(1, trials_at_once(self._resources, self.places()))

    def next_size(self, running: Collection[int]) -> int | None:
        """How many workers another trial would get beside those that run; None for no room.

        Args:
            running: workers of each trial that runs.
        """
        others = self.trials() - len(running)
        if others <= 0:
            return None
        fewest = self._resources.min_workers
        size = share(self._resources, self.places() - sum(running), others)
        if size < fewest:
            return None if running else fewest
        return size

    def overcommitted(self, running: Collection[int]) -> bool:
        """Whether the trials that run hold, or wait for, more than there is by now.

        Where there is no room for a single one, it is not known whether there will be any.
        """
        return sum(running) > self.places() >= self._resources.min_workers

    def no_room_for_more_than(self, workers: int) -> None:
        """Somebody else holds a part of the cluster: try no more until it changes."""
        self._cap = workers

    def watch(self, running: Collection[int]) -> None:
        """Note since when there is room that no trial takes; called all the time."""
        if sum(running) >= self.places():
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = self._clock()

    def let_grow(self, workers: int, waiting: Callable[[], int]) -> bool:
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
        return self._places_of(self._unheld()) + waiting() > 0

    def used(self) -> None:
        """A trial was started or ended."""
        self._used = self._clock()

    @property
    def idle(self) -> bool:
        """Whether no trial was started or ended for a while, so that free processes are unused."""
        return self._used is not None and self._clock() - self._used >= IDLE_S
