"""A local cluster, its broker and its workers that start before the session that uses them.

`tune up` prepares them. A process prepares once, for one session, which also ends them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from tuning.controller.ray_tune.cluster import cluster_nodes, ray_cluster
from tuning.controller.ray_tune.local_cluster import apply_settings, closed_to_others
from tuning.controller.ray_tune.pools import start_pool
from tuning.controller.ray_tune.processes import local_cluster
from tuning.controller.ray_tune.session_folder import keep_logs_in
from tuning.controller.resources.placement import Node, compute_placement

if TYPE_CHECKING:
    from trainables.launch.worker_pool import WorkerPool

_IMPORTS = (
    "pandas",
    "torch",
    "tuning.controller.ray_tune.driver",
    "tuning.controller.session",
)
"""What a session imports."""
_POLL_S = 0.1


class PreparedCluster:
    """A cluster that waits for its session.

    Attributes:
        is_used: whether a session has begun.
        is_shared: whether it stays up for other sessions.
    """

    def __init__(self) -> None:
        self.is_used = self.is_shared = False
        self._failed: Callable[[], bool] = lambda: False
        self._lost: Callable[[str], None] = _end_this_process
        self._stack = ExitStack()
        self._needs: tuple[Any, ...] = ()
        self._pool: tuple[WorkerPool, Any] | None = None
        apply_settings()
        opened = closed_to_others(None, lambda: self._failed())
        self._folder = self._stack.enter_context(opened)
        started = local_cluster(self._folder, lambda reason: self._lost(reason))
        try:
            self._stack.enter_context(started)
        except BaseException:
            self.close()
            raise

    def start_workers(self, spec: SweepSpec, trainable: str) -> None:
        """Start the workers of a sweep, and wait until they can take a trial.

        Args:
            spec: of the sweep.
            trainable: its name, valid in any folder. The workers import it; user code that starts
                its own processes has none.

        Raises:
            UserError: no trial of the sweep fits this machine.
        """
        if resolve(trainable).uses_ray_train:
            return
        placement = compute_placement(spec.resources, cluster_nodes())
        folder = self._folder.with_name("train")
        self._needs = worker_needs(spec)
        self._pool = pool, _ = start_pool(spec, placement, folder, trainable)
        self._stack.callback(pool.close)
        deadline = time.monotonic() + spec.failure.start_timeout
        while pool.workers_up() < sum(placement.workers_per_trial) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def take_pool(self, spec: SweepSpec) -> tuple[WorkerPool, Any] | None:
        """The worker pool, once, if it is as the sweep needs it; otherwise its workers end."""
        taken, self._pool = self._pool, None
        if taken is None or self._needs == worker_needs(spec):
            return taken
        taken[0].close()
        return None

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


_prepared: list[PreparedCluster] = []


def starts_one(address: str | None) -> bool:
    """Whether a session with this address starts a cluster on this machine."""
    import ray

    chosen = address or os.environ.get("RAY_ADDRESS")
    return chosen in (None, "", "local") and (bool(_prepared) or not ray.is_initialized())


def prepare() -> PreparedCluster:
    """Import what a session needs, and start the cluster of this process's next session."""
    for name in _IMPORTS:
        import_module(name)
    _prepared.append(PreparedCluster())
    return _prepared[0]


@contextmanager
def session_cluster(
    address: str | None,
    logs: Path,
    failed: Callable[[], bool],
    lost: Callable[[str], None],
) -> Iterator[list[Node]]:
    """The prepared cluster, or else that of `ray_cluster`, while the block runs."""
    if not _prepared:
        with ray_cluster(address, logs, failed, lost) as nodes:
            yield nodes
        return
    used = _prepared[0]
    try:
        with used.session(logs, failed, lost):
            yield cluster_nodes()
    finally:
        if not used.is_shared:
            _prepared.clear()


def share() -> None:
    """Let the prepared cluster stay up after a session; start it if there is none."""
    _prepared[:] = _prepared or [PreparedCluster()]
    _prepared[0].is_shared = True


def close_shared() -> None:
    """End the cluster that stayed up, if there is one."""
    for cluster in _prepared:
        cluster.close()
    _prepared.clear()


def is_prepared() -> bool:
    """Whether the session of this process has a prepared cluster."""
    return bool(_prepared)


def take_pool(spec: SweepSpec) -> tuple[WorkerPool, Any] | None:
    """The prepared workers, once, if a sweep can use them; None: it has to start its own."""
    return _prepared[0].take_pool(spec) if _prepared else None


def worker_needs(spec: SweepSpec) -> tuple[Any, ...]:
    """What workers are started for."""
    trainable = resolve(spec.trainable)
    return (
        spec.resources,
        spec.failure.start_timeout,
        trainable.isolation,
        trainable.uses_ray_train,
    )


def _end_this_process(reason: str) -> None:
    """Ray died while no sweep used it; the handler of SIGTERM ends the rest."""
    os.kill(os.getpid(), signal.SIGTERM)
