"""Runs users' Ray Train loops: each attempt has its own processes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker import Broker
from trainables.launch.events import Leak
from trainables.launch.ray_train import WorkerGroupSpec, error_line, is_alive

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class FreshWorkerPool:
    """A fresh `TorchTrainer` for each attempt."""

    def __init__(self, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> None:
        self._spec, self._broker = spec, broker
        self._runs: dict[str, tuple[Any, Any]] = {}  # actor of `FreshRun`, and its result

    def start(self, job: TrialJob) -> None:
        """Start an attempt in its own actor."""
        import ray

        from trainables.launch.fresh_run import FreshRun

        with suppress(ray.exceptions.RayError):  # see `is_alive`
            ray.get(self._broker.begin_attempt.remote(job.key))  # before its first event
        actor: Any = ray.remote(FreshRun)
        run = actor.options(num_cpus=0).remote()
        spec = replace(self._spec, avoid=job.avoid)
        self._runs[job.key] = run, run.fit.remote(job, spec, self._broker)

    def release(self, key: str, *, unusable: bool = False) -> None:
        """End the attempt's processes; a loop does not read a request to stop.

        A killed run does not free its resources. So the placement group is removed here.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        ray.kill(self._runs.pop(key)[0])
        try:
            group: Any = ray.get(self._broker.forget_attempt.remote(key))
        except ray.exceptions.RayError:  # the broker died; its job ends, and frees them
            return
        if group is not None:
            remove_placement_group(group)

    def retire_idle(self, keep: int) -> None:
        """Does nothing: no process outlives its attempt."""

    def workers_up(self) -> int:
        """Workers of all running attempts."""
        return len(self._runs) * self._spec.workers

    def machines(self) -> dict[str, list[str]]:
        """Machine ids of the attempts whose workers are up, by their keys."""
        import ray

        machines: Any = self._broker.attempt_machines.remote()
        try:
            return dict(ray.get(machines))
        except ray.exceptions.RayError:  # `is_alive` reports it
            return {}

    def cancel_starts(self) -> None:
        """Does nothing: Ray Train limits the time that an attempt waits for resources."""

    def is_alive(self) -> bool:
        """Whether the broker answers."""
        return is_alive(self._broker)

    def failure_reason(self, key: str, wait_s: float) -> str | None:
        """Why an attempt's processes failed, in one line; None if they do not fail in that time."""
        import ray

        try:
            failed: str | None = ray.get(self._runs[key][1], timeout=wait_s)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.RayError as e:
            return error_line(e)
        return failed

    def take_leaks(self) -> list[Leak]:
        """Empty: a process runs one attempt."""
        return []

    def close(self) -> None:
        """End all running attempts."""
        for key in list(self._runs):
            self.release(key)
