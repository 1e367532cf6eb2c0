"""Runs attempts of functions that build a trainer: each has an actor, and the trainer's workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker.actor import get_or
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Failed
from trainables.launch.errors import error_line
from trainables.launch.pool import WorkerPool
from trainables.launch.ray_train import WorkerGroupSpec

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class FreshWorkerPool(WorkerPool):
    """Runs each attempt in processes of its own.

    Args:
        spec: the resources of the workers of one trial.
    """

    def __init__(self, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> None:
        super().__init__(broker)
        self._spec = spec
        self._runners: dict[str, Any] = {}
        self._results: dict[Any, str] = {}

    def start(self, job: TrialJob) -> None:
        """Start an attempt."""
        import ray

        from trainables.launch.ray_train_loops.run import AttemptRunner

        get_or(None, self._broker.begin_attempt.remote(job.key))  # before its first event
        actor: Any = ray.remote(AttemptRunner)
        runner = actor.options(num_cpus=0).remote(replace(self._spec, avoid=job.avoid))
        self._runners[job.key] = runner
        self._results[runner.fit.remote(job, self._broker)] = job.key

    def release(self, key: str, *, unusable: bool = False) -> None:
        """End the attempt's processes. A killed run does not free its resources: its placement
        group is removed here.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        ray.kill(self._runners.pop(key))
        self._results = {result: k for result, k in self._results.items() if k != key}
        # None if the broker died: its job ends, and frees them
        group: Any = get_or(None, self._broker.forget_attempt.remote(key))
        if group is not None:
            remove_placement_group(group)

    def retire_idle(self, keep: int) -> None:
        """Nothing: there are no processes without an attempt."""

    def poll(self) -> None:
        """End attempts whose actor was killed: nothing else would tell the driver."""
        import ray

        waiting = list(self._results)
        for result in ray.wait(waiting, num_returns=len(waiting), timeout=0)[0] if waiting else ():
            key = self._results.pop(result)
            try:
                ray.get(result)
            except ray.exceptions.RayError as e:
                self._broker.post_event.remote(key, Failed(error_line(e)))

    def workers_up(self) -> int:
        """Workers of all running attempts."""
        return len(self._runners) * self._spec.workers

    def machines(self) -> dict[str, list[str]]:
        """Machine ids of the attempts whose workers are up, by their keys."""
        return get_or({}, self._broker.attempt_machines.remote())

    def close(self) -> None:
        """End all running attempts."""
        for key in list(self._runners):
            self.release(key)
