"""Workers that `tune up` or a session leaves to the next session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.cluster.connection import cluster_nodes
from tuning.cluster.warm_cluster import STATE, WarmCluster, WarmWorkers
from tuning.controller.resources.placement import compute_placement

if TYPE_CHECKING:
    from tuning.controller.worker_manager import WorkerManager

_POLL_S = 0.1


def prepare_workers(cluster: WarmCluster, spec: SweepSpec, trainable: str) -> None:
    """Start the workers of a sweep on a warm cluster, and wait until they can take a trial.

    Args:
        trainable: its name, valid in any folder. The workers import it; user code that starts its
            own processes has none.

    Raises:
        UserError: no trial of the sweep fits this machine.
    """
    if resolve(trainable).uses_ray_train:
        return
    from trainables.launch.worker_pool import start_pool

    placement = compute_placement(spec.resources, cluster_nodes())
    sizes, gpus = placement.workers_per_trial, placement.gpus_per_worker
    pool, broker = start_pool(spec, sizes, gpus, str(cluster.train_folder), trainable)
    STATE.workers = WarmWorkers(worker_needs(spec), pool, broker)
    deadline = time.monotonic() + spec.failure.start_timeout
    while pool.workers_up() < sum(sizes) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def leave_to_next(spec: SweepSpec, workers: WorkerManager) -> bool:
    """Leave the workers of a session that has ended to the next; False if it cannot use them.

    They stay for trainables of this project only: modules of other code may have equal names.
    """
    later = STATE.later
    if later is None or any(":" in one.trainable for one in (spec, later)):
        return False
    if worker_needs(spec) != worker_needs(later) or not workers.hand_over():
        return False
    STATE.workers = WarmWorkers(worker_needs(spec), workers.pool, workers.broker)
    return True


def worker_needs(spec: SweepSpec) -> object:
    """What the workers of a sweep are started for."""
    own = resolve(spec.trainable)
    return spec.resources, spec.failure.start_timeout, own.isolation, own.uses_ray_train
