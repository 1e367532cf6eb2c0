"""Reports attempts that wait long for their workers, with what they need and what there is."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tuning.controller.resources.capacity import Capacity
from tuning.controller.resources.placement import describe_nodes

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
