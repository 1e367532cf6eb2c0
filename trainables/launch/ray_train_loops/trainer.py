"""A `TorchTrainer` for one attempt of a loop, whose workers may have been started ahead of it.

Starting processes and importing libraries takes seconds and does not depend on the trial. So
`FreshGroup.prepare` does it before the trial is known; the rest is Ray Train's own start of a run.
"""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from typing import Any, ClassVar

import ray
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.controller.controller import TrainController
from ray.train.v2._internal.execution.worker_group import worker_group
from ray.train.v2._internal.execution.worker_group.placement_group_handle import (
    DefaultPlacementGroupHandle,
)
from ray.train.v2._internal.execution.worker_group.state import WorkerGroupContext
from ray.util.placement_group import PlacementGroup

from trainables.launch.lanes.trainer import LocalTrainer
from trainables.launch.ray_train import (
    NODE_ID,
    WorkerGroupSpec,
    run_config,
    scaling_config,
    set_environment,
)
from trainables.launch.ray_train_loops.libraries import import_libraries
from trainables.runtime.gpu_share import hide_devices

_ANSWER_S = 5.0
_RUN = "trainables.launch.ray_train_loops.run"
_LIMITS = {
    "timeout_s": "RAY_TRAIN_COLLECTIVE_TIMEOUT_S",
    "warn_interval_s": "RAY_TRAIN_COLLECTIVE_WARN_INTERVAL_S",
}
"""Variables by which Ray Train's users limit the time of its own collectives."""
_GROUP_MODULE: Any = worker_group
_SYNC_ACTOR: Any = _GROUP_MODULE.SynchronizationActor


class KeptGroup(DefaultPlacementGroupHandle):
    """A placement group that outlives the run: the pool removes it."""

    def shutdown(self) -> None:
        """Nothing: the next attempt starts in it."""


class FreshGroup(worker_group.WorkerGroup):
    """Workers in a placement group that the pool has made. A process has one such group.

    Attributes:
        placement_group: of the attempt.
        ready: workers that were started ahead; empty if there are none.
    """

    placement_group: ClassVar[PlacementGroup]
    ready: ClassVar[list[Any]] = []

    def _create_placement_group(self, scaling_config: Any, worker_group_context: Any) -> Any:
        return KeptGroup(self.placement_group)

    def _create_workers(self, *args: Any, **options: Any) -> list[Any]:
        return self.ready or super()._create_workers(*args, **options)

    def prepare(self, context: WorkerGroupContext) -> None:
        """Start the workers, and the actor through which they synchronise."""
        FreshGroup.ready = self._create_workers(
            context.num_workers, self.placement_group, context.resources_per_worker
        )
        here = {NODE_ID: ray.get_runtime_context().get_node_id()}
        limits = {name: float(os.environ[v]) for name, v in _LIMITS.items() if v in os.environ}
        sync = _SYNC_ACTOR.options(label_selector=here).remote(**limits)
        _GROUP_MODULE.SynchronizationActor = StartedActor(sync)


class StartedActor:
    """Takes the place of an actor's class: its only actor is there already."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def options(self, **_: Any) -> StartedActor:
        """The same for all options."""
        return self

    def remote(self, **_: Any) -> Any:
        """The actor."""
        return self.actor


class FreshController(TrainController):
    """Ray Train's controller, in the process of the attempt's runner.

    Attributes:
        running: the controller of this process, and its event loop.
    """

    worker_group_cls = FreshGroup
    running: ClassVar[tuple[FreshController, asyncio.AbstractEventLoop]]

    async def run(self) -> None:
        """See Ray Train's."""
        FreshController.running = self, asyncio.get_running_loop()
        await super().run()  # type: ignore[no-untyped-call]


class FreshTrainer(LocalTrainer):
    """Runs one attempt."""

    controller = FreshController


def prepare_workers(trainable: str, spec: WorkerGroupSpec) -> None:
    """Start the workers of an attempt, and import in them the libraries that its script imports.

    The workers stay in `FreshGroup.ready`.
    """
    set_environment(spec, check_s=0.2)
    scaling = scaling_config(spec)
    if not FreshGroup.placement_group.wait(spec.start_timeout_s):
        return
    run = run_config("prepared", spec.folder, **worker_environment(spec))
    trainer: Any = TorchTrainer(print, scaling_config=scaling, run_config=run)
    nothing: Any = None
    context = WorkerGroupContext("", nothing, spec.workers, scaling.resources_per_worker)
    FreshGroup(trainer.train_run_context, context).prepare(context)
    imports = (trainable, spec.gpus_per_worker)
    imported = [worker.execute_async(import_ahead, *imports) for worker in FreshGroup.ready]
    import_module(_RUN)
    # of all, also after an error: a loop that imports the same beside it would see half a module
    ray.wait(imported, num_returns=len(imported))


def import_ahead(trainable: str, gpus_per_worker: float) -> None:
    """In a worker: import what its attempt will import.

    With GPUs only what is known to leave CUDA alone: Ray Train chooses the devices afterwards.
    """
    import_module(_RUN)
    if not gpus_per_worker:
        hide_devices()
        import_libraries(trainable)


def discard_dead_workers() -> None:
    """Keep the workers that were started ahead only if all of them answer."""
    if not FreshGroup.ready:
        return
    actors = [worker.actor for worker in FreshGroup.ready]
    sync = _GROUP_MODULE.SynchronizationActor.actor
    try:
        ray.get([a.__ray_ready__.remote() for a in (*actors, sync)], timeout=_ANSWER_S)
    except (ray.exceptions.RayError, TimeoutError):
        for actor in (*actors, sync):
            ray.kill(actor)
        FreshGroup.ready, _GROUP_MODULE.SynchronizationActor = [], _SYNC_ACTOR


def worker_environment(spec: WorkerGroupSpec) -> dict[str, Any]:
    """Ray's limit for OpenMP, from all CPUs of a worker: Ray would compute it from its part."""
    cpus = max(1, int(spec.cpus_per_worker))
    if cpus == max(1, int(spec.cpus_per_worker * spec.part)) or spec.omp_is_set:
        return {}
    return {"worker_runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(cpus)}}}
