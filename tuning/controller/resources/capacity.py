"""The number of trials that may run now, and of the workers of each.

The answer follows the cluster: machines may leave it or join it during a sweep. Attempts that wait
long for their workers are reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

from results.records.machines import Machine
from tuning.controller.resources.placement import (
    Node,
    Placement,
    describe_nodes,
    fair_share,
    max_concurrent_trials,
    worker_slots,
)

_REFRESH_S = 5.0
IDLE_S = 60.0
"""Seconds without a trial after which free processes are released."""


class Capacity:
    """Tracks the worker slots of the cluster, which it lists every few seconds.

    Args:
        placement: of the sweep, computed at its start; another one where trials share GPUs later.
        list_nodes: returns the machines with all their resources.
        available_nodes: returns the machines with the resources that no process of any user
            holds.
        clock: returns seconds.

    Attributes:
        placement, clock: as given.
    """

    def __init__(
        self,
        placement: Placement,
        list_nodes: Callable[[], Sequence[Node]],
        available_nodes: Callable[[], Sequence[Node]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.placement, self._resources = placement, placement.resources
        self._list_nodes, self._available_nodes, self.clock = list_nodes, available_nodes, clock
        self._refreshed, self._slots = clock(), placement.worker_slots
        self._nodes: Sequence[Node] | None = None
        self._started = math.inf
        self._cap: int | None = None
        self._last_activity: float | None = None
        self._unused_since: float | None = None

    def worker_slots(self) -> int:
        """The number of workers that fit at once."""
        if self.clock() - self._refreshed >= _REFRESH_S:
            self._nodes = self._list_nodes()
            slots, there = self._slots_of(self._nodes), sum(n.started for n in self._nodes)
            if slots != self._slots or there > self._started:
                self._cap = None
            self._started = there
            self._refreshed, self._slots = self.clock(), slots
        return self._slots if self._cap is None else min(self._cap, self._slots)

    def slots_excluding(self, machines: Collection[str]) -> int:
        """The number of workers that fit at once on the other machines."""
        return self._slots_of([n for n in self.nodes() if n.id not in machines])

    def present_machines(self, machines: Collection[Machine]) -> tuple[Machine, ...]:
        """The machines that are part of the cluster, with the ids that they have now."""
        return tuple(
            {
                n.id: m.model_copy(update={"id": n.id})
                for m in machines
                for n in self.nodes()
                if n.id == m.id or (n.address and n.address == m.address)
            }.values()
        )

    def nodes(self) -> Sequence[Node]:
        """The machines of the cluster with all their resources, as listed last."""
        if self._nodes is None:
            self._nodes = self._list_nodes()
        return self._nodes

    def _slots_of(self, nodes: Sequence[Node]) -> int:
        return worker_slots(self._resources, self.placement.gpus_per_worker, nodes)

    def refresh_soon(self) -> None:
        """List the machines again at the next call."""
        self._refreshed = -math.inf

    def max_concurrent_trials(self) -> int:
        """Number of trials that may run at once: at least one, so that a full cluster is tried."""
        return max(1, max_concurrent_trials(self._resources, self.worker_slots()))

    def next_trial_workers(self, running: Collection[int], fewest: int = 1) -> int | None:
        """The number of workers that another trial would get; None if it does not fit.

        Args:
            running: the number of workers of each running trial.
            fewest: workers that this trial needs, if it needs more than others.
        """
        others = self.max_concurrent_trials() - len(running)
        if others <= 0:
            return None
        fewest, free = max(fewest, self._resources.min_workers), self.worker_slots() - sum(running)
        if free < fewest:
            return None if running else fewest
        return max(fewest, fair_share(self._resources, free, others))

    def is_overcommitted(self, running: Collection[int]) -> bool:
        """Whether the running trials hold, or wait for, more workers than fit now.

        False if not even one trial fits: machines may join again.
        """
        return sum(running) > self.worker_slots() >= self._resources.min_workers

    def cap_workers(self, workers: int) -> None:
        """Use no more workers until the cluster changes: other users hold the rest."""
        self._cap = workers

    def track_free_slots(self, running: Collection[int]) -> None:
        """Record since when slots are free that no trial takes; call it often."""
        if sum(running) >= self.worker_slots():
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = self.clock()

    def should_grow(self, workers: int, waiting: Callable[[], int]) -> bool:
        """Whether a trial should restart with more workers; after True, False for a while.

        Args:
            workers: the number of workers of the trial.
            waiting: returns the number of workers that are up and have no trial.
        """
        if workers >= self._resources.max_workers or self._unused_since is None:
            return False
        if self.clock() - self._unused_since < self._resources.grow_after_s:
            return False
        self._unused_since = None
        return self._slots_of(self._available_nodes()) + waiting() > 0

    def mark_activity(self) -> None:
        """Record that a trial was started or ended."""
        self._last_activity = self.clock()

    @property
    def is_idle(self) -> bool:
        """Whether no trial was started or ended for `IDLE_S` seconds."""
        return self._last_activity is not None and self.clock() - self._last_activity >= IDLE_S


PATIENCE_S = 10.0
"""Seconds in which workers start on an idle machine."""
_POLL_S = 2.0


class StartWatch:
    """The attempts whose workers are not up.

    Args:
        capacity: of the cluster.
        say: is given one line when an attempt waits, when the reason changes, and when it is over.
    """

    def __init__(self, capacity: Capacity, say: Callable[[str], None]) -> None:
        self._capacity, self._say, self._clock = capacity, say, capacity.clock
        self._asked: dict[str, tuple[float, int]] = {}  # since when, and for how many workers
        self._reasons: dict[str, str] = {}
        self._next = 0.0

    def begin(self, key: str, workers: int) -> None:
        """An attempt (`TrialJob.key`) asks for so many workers."""
        self._asked[key] = self._clock(), workers

    def end(self, key: str) -> None:
        """It has its workers, or has ended."""
        self._asked.pop(key, None)
        self._reasons.pop(key, None)

    def poll(self, running: Collection[int], up: Callable[[], Collection[str]]) -> None:
        """Report what has changed; call it often.

        Args:
            running: number of workers of each attempt.
            up: returns the attempts whose workers are up.
        """
        now = self._clock()
        late = {k: asked for k, asked in self._asked.items() if now - asked[0] >= PATIENCE_S}
        if not late or now < self._next:
            return
        self._next = now + _POLL_S
        arrived, waits = up(), self._waits(running)
        for key, (since, workers) in late.items():
            trial = key.rpartition(".")[0]
            reason = waits.format(self._capacity.placement.request_of(workers))
            if key in arrived:
                if key in self._reasons:
                    self._say(f"{trial} has its workers after {now - since:.0f} s")
                self.end(key)
            elif self._reasons.get(key) != reason:
                self._reasons[key] = reason
                self._say(f"{trial} {reason}")

    def _waits(self, running: Collection[int]) -> str:
        """Why attempts wait; `{}` stands for what an attempt needs."""
        nodes = f"the cluster has {describe_nodes(self._capacity.nodes())}"
        if sum(running) <= self._capacity.worker_slots():
            return f"waits for its workers to start: {{}}; {nodes}"
        return f"waits for a machine: it needs {{}}, but {nodes}"
