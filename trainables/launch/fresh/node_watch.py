"""Tells the workers of a loop that a machine of theirs is taken away, as Ray Train documents it.

Ray Train's own callback starts an actor for it in each run; here the controller's process asks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.preemption import PreemptionWatcher

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
