"""A `TorchTrainer` that starts the workers of a lane, and no process beside them.

Each process that imports Ray Train uses seconds of CPU before the workers' imports get a core. So:

- The controller, which Ray Train puts in an actor of its own, runs in the driver, in the thread
  that waits for the lane.
- The actor through which workers synchronise is left out: a lane's workers report to the broker,
  and synchronise in their process group.
- The actor for Ray Data's data sets is left out: lanes have no such data sets.
- The actor that frees the placement group of a killed controller is left out: it asks the State
  API, which only `ray[default]` serves. The driver frees a lane's group itself.
- The actor that requests resources from autoscalers is left out: they see pending placement groups.

Private parts of Ray that this module replaces are listed in `trainables.upstream`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, ClassVar

import ray
from ray.runtime_context import RuntimeContext
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import state, worker_group
from ray.train.v2._internal.execution.worker_group.poll import WorkerStatus

from trainables.launch.ray_train import OWN_CLUSTER


def needed_callbacks(callbacks: list[Any], has_datasets: bool) -> list[Any]:
    """Ray Train's callbacks of a run, without those that start actors that it does not need."""
    datasets = () if has_datasets else (DatasetsCallback,)
    unused = (PlacementGroupCleanerCallback, *datasets)
    return [callback for callback in callbacks if not isinstance(callback, unused)]


class LocalTrainer(TorchTrainer):
    """Ray Train's own trainer, with its controller in this process and without three actors.

    Attributes:
        controller: class of the controller.
    """

    controller: ClassVar[type[TrainController]]

    def _initialize_and_run_controller(self, **kwargs: Any) -> Any:
        kwargs["callbacks"] = needed_callbacks(kwargs["callbacks"], has_datasets=False)
        kwargs["scaling_policy"] = LaneScaling(self.scaling_config)  # type: ignore[arg-type]
        # A controller takes over its process's log; the trials' records have its failures.
        os.environ["RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING"] = "0"
        logging.getLogger("ray.train").setLevel(logging.CRITICAL)
        controller: Any = self.controller(**kwargs)
        asyncio.run(controller.run())
        return controller.get_result()


class LaneGroup(worker_group.WorkerGroup):
    """Workers that may be out of reach for a while, and may take processes that wait.

    A worker whose machine cannot be reached is not dead: Ray reports its death when the machine is
    lost. Ray Train would end the run at the first connection that is cut.
    """

    def _poll_workers_and_collect_errors(self, timeout: float | None) -> list[WorkerStatus]:
        found = super()._poll_workers_and_collect_errors(timeout)
        return [
            WorkerStatus(running=True) if _is_out_of_reach(status) else status for status in found
        ]

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> Any:
        if OWN_CLUSTER in os.environ:  # its processes have this environment already
            return custom_runtime_env
        return worker_group.WorkerGroup._get_worker_runtime_env(custom_runtime_env)


def _is_out_of_reach(status: WorkerStatus) -> bool:
    failure = getattr(status.error, "health_check_failure", None)
    return isinstance(failure, ray.exceptions.ActorUnavailableError)


class LaneController(TrainController):
    """Ray Train's controller, in the process that created it."""

    worker_group_cls = LaneGroup


class LaneScaling(FixedScalingPolicy):
    """A fixed number of workers, which is not announced to an autoscaler."""

    def after_controller_start(self, train_run_context: Any) -> None:
        """Nothing: Ray's own method starts the actor that talks to autoscalers."""

    def _maybe_send_resource_request(self) -> None: ...


class NoSyncActor:
    """Stands where Ray Train makes the actor through which workers synchronise, and makes none."""

    @classmethod
    def options(cls, **_: object) -> type[NoSyncActor]:
        """Itself."""
        return cls

    @staticmethod
    def remote(**_: object) -> str:
        """What workers get in place of a handle."""
        return ""


class LaneTrainer(LocalTrainer):
    """A trainer of a lane: its workers synchronise without an actor."""

    controller = LaneController

    def _initialize_and_run_controller(self, **kwargs: Any) -> Any:
        # Ray Train has no setting for it. Only lanes have their controllers in this process.
        _WORKER_GROUP.SynchronizationActor = NoSyncActor
        _STATE._shutdown_sync_actor = lambda actor: None
        # The workers get the actor of their controller, to ask for checkpoints: here it is none.
        RuntimeContext.current_actor = property(lambda context: None)  # type: ignore[assignment]
        return super()._initialize_and_run_controller(**kwargs)


_WORKER_GROUP: Any = worker_group
_STATE: Any = state
