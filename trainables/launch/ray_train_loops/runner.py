"""The actor of one attempt of a loop. It may be started before its attempt is known: a spare."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.ray_train import WorkerGroupSpec

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.util.placement_group import PlacementGroup


class AttemptRunner:
    """One attempt: an actor of its own, so that killing it ends all processes of the attempt.

    Args:
        trainable: the loop.
        spec: its workers.
        group: in which they start; None lets Ray Train make one, after the attempt has begun.
    """

    def __init__(
        self,
        trainable: str,
        spec: WorkerGroupSpec,
        broker: ActorHandle[Broker],
        group: PlacementGroup | None,
    ) -> None:
        self._spec, self._broker, self._group = spec, broker, group
        if group is None:
            return
        from trainables.launch.ray_train_loops.trainer import FreshGroup, prepare_workers

        FreshGroup.placement_group = group
        with suppress(Exception):  # they start again with the attempt, which reports it
            prepare_workers(trainable, spec)

    def fit(self, job: TrialJob) -> str | None:
        """Run the attempt to its end.

        Returns:
            Why it failed, in one line; None if it did not.
        """
        from trainables.launch.ray_train_loops.run import run_attempt

        return run_attempt(job, self._spec, self._broker, in_group=self._group is not None)

    def ping(self) -> None:
        """Return once the workers are ready, if it starts them ahead."""

    def get_all_reported_checkpoints(self, *args: Any) -> Any:
        """Ray Train's workers ask the actor of their controller, which is this one."""
        import asyncio

        from trainables.launch.ray_train_loops.trainer import FreshController

        controller, loop = FreshController.running
        found = controller.get_all_reported_checkpoints(*args)
        return asyncio.run_coroutine_threadsafe(found, loop).result()
