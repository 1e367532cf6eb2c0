"""Sessions that follow each other in one process: they share a cluster, and workers if they can."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.spec.sweep import SweepSpec
from tuning.controller.ray_tune import prepared
from tuning.controller.ray_tune.cluster import cluster_nodes, ray_cluster
from tuning.controller.resources.placement import Node

if TYPE_CHECKING:
    from trainables.launch.worker_pool import WorkerPool
    from tuning.controller.worker_manager import WorkerManager


@dataclass
class _Shared:
    """What the sessions of a block share.

    Attributes:
        stack: closes it.
        later: the sweep for which workers of the next session stay.
        kept: workers that wait for it: the spec for which they were started, pool and broker.
    """

    stack: ExitStack = field(default_factory=ExitStack)
    later: SweepSpec | None = None
    kept: tuple[SweepSpec, WorkerPool, Any] | None = None


_block: list[_Shared] = []


@contextmanager
def shared_cluster() -> Iterator[None]:
    """Sessions in the block share a cluster: the prepared one, or that of the first session."""
    with ExitStack() as stack:
        _block.append(_Shared(stack))
        stack.callback(_block.clear)
        stack.callback(prepared.close_shared)
        stack.callback(release_workers)
        yield


def _connect(address: str | None) -> None:
    """Start the cluster that the sessions of the block share, or join it, once."""
    import ray

    if not _block:
        return
    if prepared.starts_one(address):
        prepared.share()
    elif not ray.is_initialized():
        _block[0].stack.enter_context(ray_cluster(address))
        _block[0].stack.callback(release_workers)


@contextmanager
def session_cluster(
    address: str | None, logs: Path, failed: Callable[[], bool], lost: Callable[[str], None]
) -> Iterator[list[Node]]:
    """The cluster of a session: see `prepared.session_cluster`."""
    _connect(address)
    with prepared.session_cluster(address, logs, failed, lost) as nodes:
        yield nodes


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


def keep_workers_for(spec: SweepSpec | None) -> None:
    """Let the workers of the next session stay for this sweep, which comes after it."""
    if _block:
        _block[0].later = spec


def release_workers() -> None:
    """End the workers that stayed."""
    if _block and (kept := _block[0].kept) is not None:
        _block[0].kept = None
        kept[1].close()


def keep_pool(spec: SweepSpec, workers: WorkerManager, pool: WorkerPool, broker: Any) -> bool:
    """Keep the workers of a session that has ended; False if the next one cannot use them.

    They stay for trainables of this project only: modules of other code may have equal names.
    """
    later = _block[0].later if _block else None
    if later is None or prepared.worker_needs(spec) != prepared.worker_needs(later):
        return False
    if any(":" in one.trainable for one in (spec, later)) or not workers.hand_over():
        return False
    _block[0].kept = spec, pool, broker
    return True


def take_pool(spec: SweepSpec) -> tuple[WorkerPool, Any] | None:
    """Workers that stayed or were prepared, once, if a sweep can use them; None: there are none."""
    if not _block or (kept := _block[0].kept) is None:
        return prepared.take_pool(spec)
    if prepared.worker_needs(spec) != prepared.worker_needs(kept[0]) or kept[1].broker_error():
        release_workers()
        return None
    _block[0].kept = None
    return kept[1], kept[2]
