"""The lanes of a sweep: assigns trials to them, retires and replaces them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainables.job import Answer, TrialJob
from trainables.launch.broker.actor import get_or
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Leak
from trainables.launch.lanes.lane import Lane
from trainables.launch.pool import WorkerPool
from trainables.launch.ray_train import WorkerGroupSpec

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_CLOSE_S = 20.0
_ENOUGH = 2
"""Trials that failed where others had run: one may fail by itself."""
_FRESH = "from now on each trial has new processes"
_SETTLE_S = 5.0
"""Longest wait for trials that were stopped to leave their lanes."""


class LanePool(WorkerPool):
    """A number of lanes. A lane that died or has run its share of trials is replaced on demand.

    Args:
        spec: the resources of the workers of one lane.
        sizes: initial number of workers of each concurrent trial.
        trials_per_lane: None for any number.
        max_growth: bytes beyond its baseline after which a lane is retired.
        is_known: see `Trainable`. From the first leak of other code on, a lane runs one trial.
    """

    def __init__(
        self,
        spec: WorkerGroupSpec,
        sizes: Sequence[int],
        broker: ActorHandle[Broker],
        trials_per_lane: int | None,
        max_growth: int,
        is_known: bool = True,
    ) -> None:
        super().__init__(broker)
        self._is_known, self._guesses = is_known, 0
        self._spec, self._trials_per_lane, self._max_growth = spec, trials_per_lane, max_growth
        first = self._new_lane(sizes[0])
        self._idle = [*(self._new_lane(n, after=first) for n in sizes[1:]), first]
        self._busy: dict[str, Lane] = {}
        self._retired: list[Lane] = []

    def start(self, job: TrialJob) -> None:
        """Begin an attempt on an idle lane that has its number of workers and no excluded machine.

        The lane that was released last comes first. If no lane fits, all idle ones are retired:
        they hold the resources that a new one needs.
        """
        self._drop_dead_lanes()
        fitting = [lane for lane in reversed(self._idle) if lane.workers == job.workers]
        if job.avoid and fitting:
            up = self._lanes_up()
            fitting = [
                lane for lane in fitting if lane.id in up and {*job.avoid}.isdisjoint(up[lane.id])
            ]
        if fitting:
            lane = fitting[0]
            self._idle.remove(lane)
        else:
            self.retire_idle(keep=0)
            lane = self._new_lane(job.workers, job.avoid)
        self._busy[job.key] = lane
        lane.start(job)

    def release(self, key: str, *, unusable: bool = False) -> None:
        """Free the attempt's lane; it takes its next trial when this attempt has ended on it."""
        self._broker.answer.remote(key, Answer.STOP)
        lane = self._busy.pop(key)
        is_used_up = self._trials_per_lane is not None and lane.num_trials >= self._trials_per_lane
        is_used_up |= lane.gpus_per_worker != self._spec.gpus_per_worker
        if lane.is_alive and not (unusable or is_used_up or lane.is_cancelled):
            self._idle.append(lane)
        else:
            self._retire(lane)

    def use_gpus(self, gpus_per_worker: float) -> None:
        """See the base class; lanes with another part of a GPU end, busy ones after their trial."""
        if gpus_per_worker != self._spec.gpus_per_worker:
            self._spec = replace(self._spec, gpus_per_worker=gpus_per_worker)
            self.retire_idle(keep=0)

    def retire_idle(self, keep: int) -> None:
        """Retire idle lanes until `keep` are left, the longest unused first."""
        while len(self._idle) > keep:
            self._retire(self._idle.pop(0))

    def workers_up(self) -> int:
        """Workers of the lanes that are up."""
        up = self._lanes_up()
        lanes = (*self._idle, *self._busy.values(), *self._retired)
        return sum(lane.workers for lane in lanes if lane.id in up)

    def cancel_starts(self) -> None:
        """Cancel busy lanes that are not up; the broker fails their attempts."""
        up = self._lanes_up()
        for lane in self._busy.values():
            if lane.id not in up and not lane.is_cancelled:
                lane.cancel_start()

    def machines(self) -> dict[str, list[str]]:
        """Machine ids of the busy lanes that are up, by the keys of their attempts."""
        up = self._lanes_up()
        return {key: up[lane.id] for key, lane in self._busy.items() if lane.id in up}

    def _lanes_up(self) -> dict[str, list[str]]:
        return get_or({}, self._broker.lanes_up.remote())

    def take_leaks(self) -> list[Leak]:
        """Leaks of lanes that have ended since the last call."""
        self._drop_dead_lanes()
        ended = [lane for lane in self._retired if not lane.is_alive]
        self._retired = [lane for lane in self._retired if lane.is_alive]
        leaks = [lane.leak for lane in ended if lane.leak is not None]
        self._guesses += sum(not leak.is_certain for leak in leaks)
        is_clear = any(leak.is_certain for leak in leaks) or self._guesses >= _ENOUGH
        if not is_clear or self._is_known or self._trials_per_lane == 1:
            return leaks
        self._trials_per_lane = 1
        for lane in [lane for lane in self._idle if lane.num_trials]:
            self._idle.remove(lane)
            self._retire(lane)
        return [*leaks[:-1], replace(leaks[-1], message=f"{leaks[-1].message}; {_FRESH}")]

    def hand_over(self) -> bool:
        """Forget the attempts, which have all ended; False if no lane is left, or one still runs.

        Another sweep follows, whose attempts may have the same keys.
        """
        self._drop_dead_lanes()
        if self._busy or not self._idle or any(lane.is_alive for lane in self._retired):
            return False
        return get_or(False, self._broker.forget_attempts.remote(_SETTLE_S))

    def close(self) -> None:
        """Retire all lanes, and wait until they have ended; kill those that take too long."""
        for key in list(self._busy):
            self.release(key)
        self.retire_idle(keep=0)
        self._join(_CLOSE_S)
        for lane in [lane for lane in self._retired if lane.is_alive]:
            lane.kill()
        self._join(_SETTLE_S)

    def _join(self, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        for lane in self._retired:
            lane.join(max(0.0, until - time.monotonic()))

    def _new_lane(
        self, workers: int, avoid: tuple[str, ...] = (), after: Lane | None = None
    ) -> Lane:
        spec = replace(self._spec, workers=workers, avoid=avoid)
        return Lane(spec, self._broker, self._max_growth, after)

    def _drop_dead_lanes(self) -> None:
        self._retired += [lane for lane in self._idle if not lane.is_alive]
        self._idle = [lane for lane in self._idle if lane.is_alive]

    def _retire(self, lane: Lane) -> None:
        lane.retire()
        self._retired.append(lane)
