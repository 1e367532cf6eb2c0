"""Ray Train's callbacks of a run: without two actors, and with a watch over its machines.

Ray Train's own watch is one more actor in each run; here the controller's process asks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.preemption import PreemptionWatcher
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from trainables.launch.lanes.trainer import needed_callbacks

_INTERVAL_S = 2.0


class NodeWatch(WorkerGroupCallback):
    """Passes the drain of a machine on to `ray.train.get_preemption_info()` of all workers.

    Attributes:
        watcher: of this process, which runs one attempt and ends with it.
    """

    watcher: ClassVar[PreemptionWatcher | None] = None

    def after_worker_group_start(self, worker_group: Any) -> None:
        """Watch the machines of the workers from now on."""
        machines, actors = defaultdict(list), {}
        for worker in worker_group.get_workers():
            rank = worker.distributed_context.world_rank
            machines[worker.metadata.node_id].append(rank)
            actors[rank] = worker.actor
        NodeWatch.watcher = PreemptionWatcher(machines, _INTERVAL_S, actors)


def is_taken_away() -> bool:
    """Whether a machine of this process's workers is being drained."""
    watcher = NodeWatch.watcher
    return watcher is not None and watcher.get_latest_preemption_info() is not None


def start_fewer_actors() -> None:
    """Make Ray Train start two actors less for each run of this process.

    The one that frees the placement group of a killed run asks the State API for ever where only
    `ray[default]` would serve it; `FreshWorkerPool` frees the group. The one for data sets is left
    out where there are none.
    """
    trainer: Any = DataParallelTrainer
    original = trainer._initialize_and_run_controller

    def run(self: DataParallelTrainer, *, callbacks: list[Any], **settings: Any) -> Any:
        needed = needed_callbacks(callbacks, bool(self.datasets))
        return original(self, callbacks=needed, **settings)

    trainer._initialize_and_run_controller = run
