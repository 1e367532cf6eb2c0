"""The places where attempts of users' Ray Train loops run: each attempt has its own processes.

A place is a placement group with the resources of one trial. An attempt's workers hold half of it,
and its next attempt's workers, the spare, may start in the other half while this one trains. So a
spare runs on the same machines, and takes no resources from other trials.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker.actor import get_or
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Failed
from trainables.launch.errors import error_line
from trainables.launch.node_notices import draining_machines
from trainables.launch.pool import WorkerPool
from trainables.launch.ray_train import WorkerGroupSpec
from trainables.user_code.ray_code import builds_trainer

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.util.placement_group import PlacementGroup

_ANSWER_S = 5.0
_ASK_S = 1.0
"""Between two questions whether there is memory for a spare."""
_CALLS = 8
"""Calls at once of an attempt's actor: ranks ask it for the run's checkpoints."""


@dataclass
class WorkerSlot:
    """The resources of one trial. Without a group Ray Train reserves them for each attempt.

    Attributes:
        spare: the actor of the next attempt, and an object that is there once it is ready.
        runner, result: the actor of the running attempt, and what it returns.
        is_known: whether the driver knows that the attempt's actor has ended.
    """

    spec: WorkerGroupSpec
    group: PlacementGroup | None = None
    spare: tuple[Any, Any] | None = None
    runner: Any = None
    result: Any = None
    is_known: bool = False

    def is_usable(self, avoid: tuple[str, ...]) -> bool:
        """Whether it has its machines, none of those to avoid, and none that is taken away."""
        from ray.util.placement_group import placement_group_table

        if self.group is None:
            return not avoid
        found: Any = placement_group_table(self.group)
        machines = set(found["bundles_to_node_id"].values())
        waits = found["state"] == "PENDING" and not avoid
        unwanted = {*avoid, *draining_machines()}
        return waits or (found["state"] == "CREATED" and machines.isdisjoint(unwanted))


def part_of_bundle(spec: WorkerGroupSpec, spares: bool) -> float:
    """The part of a bundle that a worker holds: half, if its spare holds the other.

    With GPUs there are no spares: the memory of a GPU is free only after a process has ended.
    """
    return 0.5 if spares and not spec.gpus_per_worker else 1.0


class FreshWorkerPool(WorkerPool):
    """Runs each attempt in processes of its own, which may have been started ahead.

    Args:
        spec: the resources of the workers of one trial.
        trainable: a loop, or a function that builds a trainer, whose workers Ray Train starts.
        spares: whether to start the next attempt's workers while one trains, if memory allows.
    """

    def __init__(
        self, spec: WorkerGroupSpec, broker: ActorHandle[Broker], trainable: str, spares: bool
    ) -> None:
        super().__init__(broker)
        self._trainable, self._own_trainer = trainable, builds_trainer(trainable)
        omp_is_set = "OMP_NUM_THREADS" in os.environ
        self._spec = replace(spec, part=part_of_bundle(spec, spares), omp_is_set=omp_is_set)
        self._asked = -_ASK_S
        self._busy: dict[str, WorkerSlot] = {}
        self._idle = [self._new_place()]
        if not self._own_trainer:  # the first attempt's processes start before Ray Tune is imported
            self._idle[0].spare = self._new_runner(self._idle[0])

    def start(self, job: TrialJob) -> None:
        """Start an attempt: with the workers that wait for it, or with new ones."""

        get_or(None, self._broker.begin_attempt.remote(job.key))  # before its first event
        place = self._find_place(job.avoid)
        place.runner = self._take_spare(place)
        place.result, place.is_known = place.runner.fit.remote(job), False
        self._busy[job.key] = place

    def _find_place(self, avoid: tuple[str, ...]) -> WorkerSlot:
        """An idle place; if none is usable, a new one, for whose resources all are given up."""
        for place in reversed(self._idle):
            if place.is_usable(avoid):
                self._idle.remove(place)
                return place
        self.retire_idle(keep=0)
        return self._new_place(avoid)

    def _new_place(self, avoid: tuple[str, ...] = ()) -> WorkerSlot:
        from ray.util.placement_group import placement_group

        spec = replace(self._spec, avoid=avoid)
        if self._own_trainer:
            return WorkerSlot(replace(spec, part=1.0))
        selector = spec.label_selector
        selectors = None if selector is None else [selector] * spec.workers
        bundles = [spec.bundle] * spec.workers
        return WorkerSlot(spec, placement_group(bundles, bundle_label_selector=selectors))

    def _new_runner(self, place: WorkerSlot) -> tuple[Any, Any]:
        import ray

        from trainables.launch.ray_train_loops.runner import AttemptRunner

        actor: Any = ray.remote(AttemptRunner)
        calls = 1 if place.group is None else _CALLS  # a user's own code needs the main thread
        runner = actor.options(num_cpus=0, max_concurrency=calls).remote(
            self._trainable, place.spec, self._broker, place.group
        )
        return runner, runner.ping.remote()

    def _take_spare(self, place: WorkerSlot) -> Any:
        """The place's spare, unless its process has died; then a new one."""
        import ray

        spare, place.spare = place.spare, None
        if spare is not None:
            try:
                if not ray.wait([spare[1]], timeout=0)[0]:  # it is still starting
                    return spare[0]
                ray.get(spare[0].ping.remote(), timeout=_ANSWER_S)
                return spare[0]
            except (ray.exceptions.RayError, TimeoutError):
                ray.kill(spare[0])
        return self._new_runner(place)[0]

    def release(self, key: str, *, unusable: bool = False) -> None:
        """End the attempt's processes; a loop does not read a request to stop.

        A killed run does not free its resources: a group that Ray Train made is removed here.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        place = self._busy.pop(key)
        ray.kill(place.runner)
        self._idle.append(place)
        # None if the broker died: its job ends, and frees them
        group: Any = get_or(None, self._broker.forget_attempt.remote(key))
        if place.group is None and group is not None:
            remove_placement_group(group)

    def retire_idle(self, keep: int) -> None:
        """Give up places without an attempt until `keep` are left, the longest unused first."""
        import ray
        from ray.util.placement_group import remove_placement_group

        while len(self._idle) > keep:
            place = self._idle.pop(0)
            if place.spare is not None:
                ray.kill(place.spare[0])
            if place.group is not None:
                remove_placement_group(place.group)

    def poll(self, more: Callable[[], bool]) -> None:
        """Start a spare for each attempt that has its workers: both would compete for the cores."""

        self._report_dead_runners()
        lacking = {key: p for key, p in self._busy.items() if p.group and not p.spare}
        waits = time.monotonic() < self._asked + _ASK_S
        if self._spec.part == 1 or not lacking or waits or not more():
            return
        self._asked = time.monotonic()
        allowed: list[str] = get_or([], self._broker.attempts_with_room.remote(self._spec.workers))
        for key in lacking.keys() & allowed:
            lacking[key].spare = self._new_runner(lacking[key])

    def _report_dead_runners(self) -> None:
        """End attempts whose actor was killed: nothing else would tell the driver."""
        import ray

        watched = {p.result: (key, p) for key, p in self._busy.items() if not p.is_known}
        if not watched:
            return
        for result in ray.wait(list(watched), num_returns=len(watched), timeout=0)[0]:
            key, place = watched[result]
            place.is_known = True
            try:
                ray.get(result)
            except ray.exceptions.RayError as e:
                self._broker.post_event.remote(key, Failed(error_line(e)))

    def workers_up(self) -> int:
        """Workers of all running attempts."""
        return len(self._busy) * self._spec.workers

    def machines(self) -> dict[str, list[str]]:
        """Machine ids of the attempts whose workers are up, by their keys."""
        return get_or({}, self._broker.attempt_machines.remote())

    def close(self) -> None:
        """End all running attempts, and what waits for the next ones."""
        for key in list(self._busy):
            self.release(key)
        self.retire_idle(keep=0)
