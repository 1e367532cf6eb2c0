"""A cluster that stays up around the sessions of this process, and workers that wait for the next.

`tune up` prepares a cluster before the session that uses it, and which also ends it. The sessions
of a pipeline share one, and workers if they can.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.spec.sweep import SweepSpec
from tuning.cluster.connection import cluster_nodes, ray_cluster
from tuning.cluster.local_cluster import apply_settings, closed_to_others
from tuning.cluster.nodes import Node
from tuning.cluster.ray_processes import local_cluster
from tuning.cluster.session_folder import keep_logs_in

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from trainables.launch.broker.broker import Broker
    from trainables.launch.pool import WorkerPool


@dataclass(frozen=True)
class WarmWorkers:
    """Workers that wait for a session.

    Attributes:
        needs: what they were started for; a sweep with equal needs can use them.
        pool, broker: theirs.
    """

    needs: object
    pool: WorkerPool
    broker: ActorHandle[Broker]


class WarmCluster:
    """A cluster on this machine that waits for its session.

    Attributes:
        is_used: whether a session has begun.
        is_shared: whether it stays up for other sessions.
        train_folder: for Ray Train's own files.
    """

    def __init__(self) -> None:
        self.is_used = self.is_shared = False
        self._failed: Callable[[], bool] = lambda: False
        self._lost: Callable[[str], None] = _end_this_process
        apply_settings()
        with ExitStack() as stack:
            self._folder = stack.enter_context(closed_to_others(None, lambda: self._failed()))
            stack.enter_context(local_cluster(self._folder, lambda reason: self._lost(reason)))
            stack.callback(release_workers)
            self._stack = stack.pop_all()
        self.train_folder = self._folder.with_name("train")

    @contextmanager
    def session(
        self, logs: Path | None, failed: Callable[[], bool], lost: Callable[[str], None]
    ) -> Iterator[None]:
        """Use it in the block, and end it after, unless it is shared; see `ray_cluster`."""
        self.is_used = True
        keep_logs_in(self._folder, logs)
        self._failed, self._lost = failed, lost
        try:
            with nullcontext() if self.is_shared else self._stack:
                yield
        finally:
            self._lost = _end_this_process

    def close(self) -> None:
        """End it, if no session has."""
        self._stack.close()


@dataclass
class WarmState:
    """What stays up in this process.

    Attributes:
        cluster: on this machine, prepared for the next session or shared.
        block: the block in which sessions share a cluster.
        later: the sweep for which the workers of the block's next session stay; it comes after it.
        workers: that wait for the next session.
    """

    cluster: WarmCluster | None = None
    block: ExitStack | None = None
    later: SweepSpec | None = None
    workers: WarmWorkers | None = None


STATE = WarmState()


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Sessions in the block share a cluster: the prepared one, or that of the first session."""
    with ExitStack() as stack:
        STATE.block = stack
        stack.callback(_end_block)
        yield


def _end_block() -> None:
    release_workers()
    if STATE.cluster is not None:
        STATE.cluster.close()
    STATE.cluster = STATE.block = STATE.later = None


def _connect(address: str | None) -> None:
    """Start the cluster that the sessions of the block share, or join it, once."""
    import ray

    if STATE.block is None:
        return
    is_local = (address or os.environ.get("RAY_ADDRESS")) in (None, "", "local")
    if is_local and (STATE.cluster is not None or not ray.is_initialized()):
        STATE.cluster = STATE.cluster or WarmCluster()
        STATE.cluster.is_shared = True
    elif not ray.is_initialized():
        STATE.block.enter_context(ray_cluster(address))
        STATE.block.callback(release_workers)


@contextmanager
def session_cluster(
    address: str | None, logs: Path, failed: Callable[[], bool], lost: Callable[[str], None]
) -> Iterator[list[Node]]:
    """The warm cluster, or else that of `ray_cluster`, while the block runs."""
    _connect(address)
    if (warm := STATE.cluster) is None:
        with ray_cluster(address, logs, failed, lost) as nodes:
            yield nodes
        return
    try:
        with warm.session(logs, failed, lost):
            yield cluster_nodes()
    finally:
        if not warm.is_shared:
            STATE.cluster = None


def nodes_of(address: str | None) -> list[Node]:
    """The machines of the cluster that the sessions of the block share."""
    _connect(address)
    return cluster_nodes()


def shared_address(address: str | None) -> str:
    """The address at which another process joins the cluster that the sessions share."""
    import ray

    if address is not None:
        return address
    _connect(None)
    return str(ray.get_runtime_context().gcs_address)


def take_workers(
    needs: object, gpus_per_worker: float
) -> tuple[WorkerPool, ActorHandle[Broker]] | None:
    """The workers that wait, once, if they fit; otherwise they end. None: there are none."""
    kept, STATE.workers = STATE.workers, None
    if kept is None:
        return None
    if kept.needs == needs and not kept.pool.broker_error():
        kept.pool.use_gpus(gpus_per_worker)
        return kept.pool, kept.broker
    kept.pool.close()
    return None


def release_workers() -> None:
    """End the workers that wait."""
    kept, STATE.workers = STATE.workers, None
    if kept is not None:
        kept.pool.close()


def _end_this_process(reason: str) -> None:
    """Ray died while no sweep used it; the handler of SIGTERM ends the rest."""
    os.kill(os.getpid(), signal.SIGTERM)
