"""The Ray cluster of a session, and how its trials are placed on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from trainables.registry import resolve
from tuning.cluster.messages import ray_messages_to
from tuning.cluster.warm_cluster import session_cluster
from tuning.controller.ray_tune.runner import import_in_background
from tuning.controller.resources.budget import check_gpu_budget
from tuning.controller.resources.placement import (
    Placement,
    compute_placement,
    no_cpu_for_tasks,
    unused_gpus,
    unused_nccl,
)
from tuning.controller.sweep import SweepController


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
        placement = compute_placement(run.spec.resources, nodes)
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
