"""Loops written for Ray Train share nothing: each attempt has processes of its own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker import Broker, is_alive
from trainables.launch.events import Leak
from trainables.launch.ray_train import WorkerGroupSpec, error_line

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class FreshWorkerPool:
    """A fresh `TorchTrainer` for each attempt."""

    def __init__(self, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> None:
        self._spec, self._broker = spec, broker
        self._runs: dict[str, tuple[Any, Any]] = {}  # actors of ForeignRun, and how they end

    def start(self, job: TrialJob) -> None:
        """Begin an attempt in an actor of its own."""
        import ray

        from trainables.launch.fresh_run import FreshRun

        with suppress(ray.exceptions.RayError):  # see `is_alive`
            ray.get(self._broker.begin_attempt.remote(job.key))  # before its first event
        actor: Any = ray.remote(FreshRun)
        run = actor.options(num_cpus=0).remote()
        spec = replace(self._spec, avoid=job.avoid)
        self._runs[job.key] = run, run.fit.remote(job, spec, self._broker)

    def release(self, key: str, *, unusable: bool = False) -> None:
        """End the attempt's processes: the loop cannot be told.

        Ray Train's own cleaner of what a killed run held needs the State API, which only
        `ray[default]` serves; without it the CPUs would be lost to the sweep.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        ray.kill(self._runs.pop(key)[0])
        try:
            group: Any = ray.get(self._broker.forget_attempt.remote(key))
        except ray.exceptions.RayError:  # the broker died; Ray Train frees what it can
            return
        if group is not None:
            remove_placement_group(group)

    def retire_idle(self, keep: int) -> None:
        """Nothing: no process outlives its attempt."""

    def workers_up(self) -> int:
        """Workers of attempts under way: each comes up by itself."""
        return len(self._runs) * self._spec.workers

    def machines(self) -> dict[str, list[str]]:
        """Nothing is known before an attempt has failed."""
        return {}

    def cancel_starts(self) -> None:
        """Nothing: what waits for room has been told so by Ray Train, or will be."""

    def is_alive(self) -> bool:
        """Whether the broker answers."""
        return is_alive(self._broker)

    def failure_reason(self, key: str, wait_s: float) -> str | None:
        """How an attempt's processes failed, one line, where they do within some seconds."""
        import ray

        try:
            failed: str | None = ray.get(self._runs[key][1], timeout=wait_s)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.RayError as e:
            return error_line(e)
        return failed

    def take_leaks(self) -> list[Leak]:
        """None: a process runs one attempt."""
        return []

    def close(self) -> None:
        """End what is under way."""
        for key in list(self._runs):
            self.release(key)
