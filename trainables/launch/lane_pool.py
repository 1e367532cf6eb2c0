"""The lanes of a sweep: which takes the next trial, which leave, which are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainables.job import Answer, TrialJob
from trainables.launch.broker import Broker, is_alive
from trainables.launch.lane import Lane
from trainables.launch.ray_train import Shape
from trainables.launch.trial_outcome import Leak

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_CLOSE_S = 20.0


class LanePool:
    """A number of lanes; one that died or has done its share is replaced when it is needed."""

    def __init__(
        self,
        shape: Shape,
        sizes: Sequence[int],
        broker: ActorHandle[Broker],
        per_lane: int | None,
        max_growth: int,
    ) -> None:
        self._shape, self._mailbox = shape, broker
        self._per_lane, self._max_growth = per_lane, max_growth
        first = self._new(sizes[0])
        self._free = [*(self._new(n, after=first) for n in sizes[1:]), first]
        self._busy: dict[str, Lane] = {}
        self._leaving: list[Lane] = []

    def start(self, job: TrialJob) -> None:
        """Begin an attempt on a free lane of its number of workers, off the machines it avoids.

        The one that was released last comes first. Where there is none, the others leave: they hold
        what the new one needs.
        """
        self._part_from_the_dead()
        fit = [one for one in reversed(self._free) if one.workers == job.workers]
        if job.avoid and fit:
            up = self._lanes_up()
            fit = [one for one in fit if one.id in up and {*job.avoid}.isdisjoint(up[one.id])]
        lane = next(iter(fit), None)
        if lane is None:
            self.keep(0)
            lane = self._new(job.workers, job.avoid)
        else:
            self._free.remove(lane)
        self._busy[job.key] = lane
        lane.start(job)

    def release(self, key: str, *, unusable: bool = False) -> None:
        """Free the attempt's lane; it takes the next one when this one has left it."""
        self._mailbox.answer.remote(key, Answer.STOP)
        lane = self._busy.pop(key)
        done = self._per_lane is not None and lane.trials >= self._per_lane
        if lane.alive and not (unusable or done or lane.recalled):
            self._free.append(lane)
        else:
            self._retire(lane)

    def keep(self, idle: int) -> None:
        """Retire free lanes, the longest unused first."""
        while len(self._free) > idle:
            self._retire(self._free.pop(0))

    def up(self) -> int:
        """Workers of lanes that came up and are there."""
        up = self._lanes_up()
        return sum(lane.workers for lane in self._all() if lane.id in up)

    def recall(self) -> None:
        """Give up busy lanes that did not come up: the mailbox tells their attempts."""
        up = self._lanes_up()
        for lane in [one for one in self._busy.values() if one.id not in up and not one.recalled]:
            lane.recall()

    def machines(self) -> dict[str, list[str]]:
        """Of busy lanes that are up."""
        up = self._lanes_up()
        return {key: up[lane.id] for key, lane in self._busy.items() if lane.id in up}

    def _lanes_up(self) -> dict[str, list[str]]:
        import ray

        machines: Any = self._mailbox.lanes_up.remote()
        try:
            return dict(ray.get(machines))
        except ray.exceptions.RayError:  # see `is_alive`
            return {}

    def _all(self) -> Iterator[Lane]:
        yield from (*self._free, *self._busy.values(), *self._leaving)

    def is_alive(self) -> bool:
        """Whether the mailbox is there."""
        return is_alive(self._mailbox)

    def why_gone(self, key: str, wait_s: float) -> str | None:
        """How an attempt's processes failed, one line, where they do within some seconds."""
        self._busy[key].join(wait_s)
        return self._busy[key].failed

    def leaks(self) -> list[Leak]:
        """Of lanes that have left; those that are asked for are forgotten."""
        self._part_from_the_dead()
        gone = [lane for lane in self._leaving if not lane.alive]
        self._leaving = [lane for lane in self._leaving if lane.alive]
        return [lane.leak for lane in gone if lane.leak is not None]

    def close(self) -> None:
        """Tell all lanes to leave, and wait for it."""
        for key in list(self._busy):
            self.release(key)
        self.keep(0)
        for lane in self._leaving:
            lane.join(_CLOSE_S)

    def _new(self, workers: int, avoid: tuple[str, ...] = (), after: Lane | None = None) -> Lane:
        shape = replace(self._shape, workers=workers, avoid=avoid)
        return Lane(shape, self._mailbox, self._max_growth, after)

    def _part_from_the_dead(self) -> None:
        self._leaving += [lane for lane in self._free if not lane.alive]
        self._free = [lane for lane in self._free if lane.alive]

    def _retire(self, lane: Lane) -> None:
        lane.retire()
        self._leaving.append(lane)
