"""Runs trials again on workers like those of their sweep, as many at once as fit the cluster."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from results.paths import SweepPaths
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.job import Answer, TrialJob
from trainables.launch.rerun import RerunOrder
from trainables.registry import resolve
from tuning.controller.resources.placement import Placement, compute_placement, describe_nodes

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from trainables.launch.broker.broker import Broker
    from trainables.launch.broker.events import Event
    from trainables.launch.pool import WorkerPool
    from tuning.cluster.nodes import Node

_POLL_S = 0.5


def run_on_cluster(
    paths: SweepPaths, spec: SweepSpec, orders: Sequence[RerunOrder], address: str | None
) -> Generator[tuple[RerunOrder, str], None, None]:
    """Run attempts under Ray, each to its end or to the report of its step.

    Args:
        paths, spec: of the sweep.
        orders: at least one.
        address: of the Ray cluster; None starts one on this machine.

    Yields:
        Each order when it has ended, and in one line why its training failed; empty if it did not.

    Raises:
        UserError: an attempt does not fit the cluster, or the broker of the attempts died.
    """
    from tuning.cluster.connection import ray_cluster
    from tuning.cluster.ray_processes import ray_messages_to

    resolve(spec.trainable).check_runnable()
    with ray_messages_to(paths.ray_messages), ray_cluster(address, paths.ray_logs) as nodes:
        placement = compute_placement(spec.resources, nodes)
        fitting = [replace(o, job=_fitted(o.job, spec, placement, nodes)) for o in orders]
        pool, broker = _workers(paths, spec, placement, fitting)
        with closing(pool):
            yield from _run(pool, broker, fitting, placement)


def _fitted(
    job: TrialJob, spec: SweepSpec, placement: Placement, nodes: Sequence[Node]
) -> TrialJob:
    """The job, with fewer workers if it needs more than there are and may have fewer."""
    slots = placement.worker_slots
    if job.workers <= slots:
        return job
    if not spec.resources.elastic or job.layout != spec.resources.written_layout:
        raise UserError(
            f"{job.trial_id} trained on {job.workers} workers, and {slots} fit "
            f"{describe_nodes(nodes)}; name a larger cluster with --address"
        )
    return replace(job, workers=slots)


def _workers(
    paths: SweepPaths, spec: SweepSpec, placement: Placement, orders: Sequence[RerunOrder]
) -> tuple[WorkerPool, ActorHandle[Broker]]:
    """Workers for the first orders: new ones, or those that an earlier session has left."""
    from trainables.launch.worker_pool import start_pool
    from tuning.cluster.warm_cluster import take_workers
    from tuning.controller.ray_tune.pools import worker_needs

    needs = None if ":" in spec.trainable else worker_needs(spec)
    sizes = [order.job.workers for order in orders[: placement.concurrency]]
    while sum(sizes) > placement.worker_slots:
        sizes.pop()
    folder, gpus = str(paths.ray / "train"), placement.gpus_per_worker
    return take_workers(needs, gpus) or start_pool(spec, sizes, gpus, folder)


def _run(
    pool: WorkerPool, broker: Any, orders: Sequence[RerunOrder], placement: Placement
) -> Generator[tuple[RerunOrder, str], None, None]:
    from trainables.launch.broker.events import Failed, Reported

    waiting, running = deque(orders), dict[str, RerunOrder]()
    answers: dict[str, Answer] = {}
    while waiting or running:
        while waiting and _has_room(placement, running, waiting[0]):
            order = waiting.popleft()
            running[order.job.key] = order
            pool.start(order.job)
        for key, event in _exchange(pool, broker, answers):
            if key not in running:  # its workers died after its last report
                continue
            if isinstance(event, Reported) and event.report.step < running[key].until:
                answers[key] = Answer.CONTINUE
                continue
            problem = event.reason if isinstance(event, Failed) else ""
            pool.release(key, unusable=bool(problem))
            yield running.pop(key), problem


def _has_room(placement: Placement, running: Mapping[str, RerunOrder], order: RerunOrder) -> bool:
    held = sum(one.job.workers for one in running.values())
    fits = held + order.job.workers <= placement.worker_slots
    return fits and len(running) < placement.concurrency


def _exchange(
    pool: WorkerPool, broker: Any, answers: dict[str, Answer]
) -> Sequence[tuple[str, Event]]:
    """Send the answers, and wait for the next events.

    Raises:
        UserError: the broker died.
    """
    import ray

    call = uuid.uuid4().hex, dict(answers)
    answers.clear()
    reply = broker.exchange.remote(*call)
    while True:
        try:
            if ray.wait([reply], timeout=_POLL_S)[0]:
                events: Sequence[tuple[str, Event]] = ray.get(reply)
                return events
        except ray.exceptions.ActorUnavailableError:  # the reply was lost
            reply = broker.exchange.remote(*call)
        except ray.exceptions.RayError as e:
            raise UserError(f"Ray ended before the trainings: {pool.broker_error()}") from e
        pool.poll()
