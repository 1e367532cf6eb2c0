"""Starts the workers of a sweep: in lanes, or in fresh processes for each attempt."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from search_spaces.spec.resources import ResourcesSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.launch.broker.actor import start_broker
from trainables.launch.broker.broker import Broker
from trainables.launch.lanes.pool import LanePool
from trainables.launch.pool import WorkerPool
from trainables.launch.ray_train import WorkerGroupSpec
from trainables.launch.ray_train_loops.pool import FreshWorkerPool
from trainables.registry import resolve

if TYPE_CHECKING:
    from ray.actor import ActorHandle


def start_pool(
    spec: SweepSpec, sizes: Sequence[int], gpus_per_worker: float, folder: str, preload: str = ""
) -> tuple[WorkerPool, ActorHandle[Broker]]:
    """Start the broker of a sweep and, in the background, its workers.

    Args:
        spec: of the sweep.
        sizes: initial number of workers of each concurrent trial.
        gpus_per_worker: resolved from `auto`.
        folder: for Ray Train's own files.
        preload: see `WorkerGroupSpec`.
    """
    broker, resources, trainable = start_broker(), spec.resources, spec.trainable
    found = resolve(trainable)
    preload = preload or ("" if found.is_known else trainable)
    group = WorkerGroupSpec.of(spec, sizes[0], gpus_per_worker, folder, preload)
    if found.uses_ray_train:
        return FreshWorkerPool(group, broker), broker
    # Not in the lanes' threads: two threads must not import modules that import each other.
    import_module("trainables.launch.lanes.trainer")
    max_growth, most = resources.max_lane_growth * 2**20, trials_per_lane(resources, trainable)
    return LanePool(group, sizes, broker, most, max_growth, found.is_known), broker


def trials_per_lane(resources: ResourcesSpec, trainable: str) -> int | None:
    """1 if the sweep or the trainable asks for fresh processes; None: any number."""
    fresh = "trial" in (resources.isolation, resolve(trainable).isolation)
    return 1 if fresh else resources.max_trials_per_lane
