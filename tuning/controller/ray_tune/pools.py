"""Starts the worker pool of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.spec.sweep import SweepSpec
from tuning.controller.resources.placement import Placement

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from trainables.launch.broker.broker import Broker
    from trainables.launch.worker_pool import WorkerPool


def start_pool(
    spec: SweepSpec, placement: Placement, folder: Path, preload: str = ""
) -> tuple[WorkerPool, ActorHandle[Broker]]:
    """Start the broker and, in the background, the workers of a sweep.

    Args:
        spec, placement: of the sweep.
        folder: for Ray Train's own files.
        preload: see `WorkerGroupSpec`.
    """
    from trainables.launch.broker.actor import start_broker
    from trainables.launch.ray_train import WorkerGroupSpec
    from trainables.launch.worker_pool import Isolation, launch

    broker, resources = start_broker(), spec.resources
    group = WorkerGroupSpec(
        placement.workers_per_trial[0],
        resources.cpus_per_worker,
        placement.gpus_per_worker,
        spec.failure.start_timeout,
        str(folder),
        preload=preload,
        process_group_timeout_s=resources.process_group_timeout_s,
        notices=spec.failure.preemption_notices,
        nccl=tuple(resources.nccl.items()),
    )
    isolation = Isolation(
        resources.isolation,
        resources.max_trials_per_lane,
        resources.max_lane_growth * 2**20,
        resources.spares,
    )
    return launch(spec.trainable, isolation, group, placement.workers_per_trial, broker), broker
