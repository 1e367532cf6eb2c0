"""Runs the trials of a sweep: joins or starts a Ray cluster, starts workers, then Ray Tune.

Processes start while this one imports, so the slow imports are inside functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

from search_spaces.errors import afterwards
from trainables.registry import resolve
from tuning.cluster.local_cluster import apply_settings
from tuning.cluster.ray_processes import ray_messages_to
from tuning.cluster.warm_cluster import session_cluster, take_workers
from tuning.controller.resources.budget import check_gpu_budget
from tuning.controller.resources.capacity import Capacity
from tuning.controller.resources.gpu_shares import GpuShares
from tuning.controller.resources.placement import (
    Placement,
    compute_placement,
    no_cpu_for_tasks,
    unused_gpus,
    unused_nccl,
)
from tuning.controller.sweep import SweepController
from tuning.controller.worker_manager import WorkerManager

_MAX_BROKERS = 5
"""Number of brokers that a session starts before it gives up."""
_SLOW_IMPORTS = ("torch", "pandas")
"""Modules that take long to import and do not use Ray: two threads must not import the same one."""


@contextmanager
def import_in_background() -> Iterator[None]:
    """Import in a thread what Ray Train needs, while the block starts Ray's processes.

    Ray is imported first: what the thread imports would delay the start of these processes.
    """
    apply_settings()
    import_module("ray")
    thread = threading.Thread(target=lambda: [import_module(m) for m in _SLOW_IMPORTS])
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def cluster_session(run: SweepController, address: str | None) -> Iterator[Placement | None]:
    """Join or start a Ray cluster while the block runs; None if no trial is to run."""
    if run.finished or run.interrupted:
        yield None
        return
    resolve(run.spec.trainable).check_runnable()
    with ExitStack() as stack:
        run.observers.message("starting Ray")
        with import_in_background():
            stack.enter_context(ray_messages_to(run.paths.ray_messages))
            before = _failures(run)
            nodes = stack.enter_context(
                session_cluster(
                    address,
                    run.paths.ray_logs,
                    failed=lambda: run.gave_up or _failures(run) > before,
                    lost=run.give_up,
                )
            )
        share = GpuShares.read(run.paths).share
        placement = compute_placement(run.spec.resources, nodes, share)
        check_gpu_budget(run.spec.budget, placement)
        if note := unused_gpus(placement, nodes):
            run.observers.message(f"GPUs: {note}")
        if note := unused_nccl(placement):
            run.observers.message(note)
        reads_datasets = resolve(run.spec.trainable).reads_datasets
        if reads_datasets and (problem := no_cpu_for_tasks(placement, nodes)):
            run.observers.message(f"Ray Data: {problem}")
        run.observers.concurrency_known(placement.concurrency)
        yield placement


def _failures(run: SweepController) -> int:
    """Number of attempts that failed, in all sessions."""
    return sum(bool(a.error) for record in run.records.values() for a in record.attempts)


def run_trials(run: SweepController, placement: Placement, between: Callable[[], None]) -> None:
    """Run a sweep's trials. If the broker dies, start a new one: trials resume from checkpoints.

    Args:
        run: the sweep.
        placement: of its trials.
        between: called often, between the trials' events.
    """
    from tuning.cluster.connection import available_nodes, cluster_nodes

    capacity = Capacity(placement, cluster_nodes, available_nodes)
    for _ in range(_MAX_BROKERS):
        with _start_workers(run, capacity) as workers:
            from tuning.controller.ray_tune.driver import run_trials  # while the workers start

            run_trials(run, workers, between)
        if not workers.broker_lost:
            return
    times = f"died {_MAX_BROKERS} times, last of"
    run.give_up(f"the broker of the trials {times} {workers.broker_lost} ({run.paths.ray_logs})")


@contextmanager
def _start_workers(run: SweepController, capacity: Capacity) -> Iterator[WorkerManager]:
    """Start the workers of a sweep in the background, and end them after the block.

    After a session that was not interrupted the next one may take them over.
    """
    from trainables.launch.worker_pool import start_pool
    from tuning.controller.ray_tune.pools import leave_to_next, worker_needs

    spec, folder = run.spec, str(run.paths.ray / "train")
    sizes, gpus = capacity.placement.workers_per_trial, capacity.placement.gpus_per_worker
    kept = take_workers(worker_needs(spec), gpus)
    pool, broker = kept or start_pool(spec, sizes, gpus, folder)
    workers = WorkerManager(run, pool, broker, capacity)
    stay = ExitStack()
    stay.callback(workers.close)
    with afterwards(stay.close):
        yield workers
        if not run.interrupted and leave_to_next(spec, workers):
            stay.pop_all()
