"""Runs a user's train loop, written for Ray Train's public API, without changes to it.

Ray Train keeps the loop's checkpoints; this module makes it resume from the newest intact one. Each
attempt gets its own `TorchTrainer`. Stopping a trial ends its processes without asking the loop.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from results.records.reports import read_reports
from results.storage.log_filter import start_log_filter
from search_spaces.redaction import also_redact
from trainables.checkpointing.saver import Superseded
from trainables.job import TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Ended, Failed, Reported
from trainables.launch.broker.rank_reports import ReportCounter
from trainables.launch.errors import describe_failure, without_secrets
from trainables.launch.ray_train import (
    TrainWorker,
    WorkerGroupSpec,
    checkpoint_snapshot,
    fit,
    over_node_network,
    run_config,
    scaling_config,
    set_environment,
)
from trainables.launch.ray_train_loops.callbacks import NodeWatch, start_fewer_actors
from trainables.launch.ray_train_loops.forward_reports import ForwardReports, is_last, post_event
from trainables.launch.run_trial import output_to
from trainables.registry import resolve
from trainables.runtime.memory import has_room
from trainables.runtime.phase_times import PhaseTimes
from trainables.runtime.provenance import ProvenanceRecorder
from trainables.runtime.sampler import UsageSampler
from trainables.user_code.loader import load, user_modules
from trainables.user_code.private_folders import (
    enter_private_folders,
    wait_for_earlier_attempts,
)
from trainables.user_code.ray_train.checkpoints import (
    add_missing_manifests,
    prepare_attempt,
    prune,
)
from trainables.user_code.ray_train.functions import LoopFunctions
from trainables.user_code.silence import SilenceWatch
from trainables.user_code.user_trainer import adopt_trainers, own_loop, refuse_fit

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.train import RunConfig


def user_loop_worker(config: dict[str, Any]) -> None:
    """Run the user's loop on this worker, with its output in the trial's log."""
    import ray
    from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils

    job: TrialJob = config["job"]
    broker: Any = config["broker"]
    also_redact(job.redact)
    worker = TrainWorker.begin(config["gpus_per_worker"], config["notices"])
    rank, device, has_room_left = worker.rank, worker.device, has_room(worker.local_world_size)
    broker.register_worker.remote(job.key, rank, worker.machine, worker.group, has_room_left)
    log = job.paths.log(job.attempt, rank)
    counter = ReportCounter(broker, job.key, rank, worker.world_size)
    try:
        with counter as reports, output_to(log), SilenceWatch(log, job.hang_timeout_s) as watch:
            _enter_folders(job)
            if rank == 0:
                recorder = ProvenanceRecorder(job.paths, job.attempt, device, worker.world_size)
                recorder.begin(resolve(job.trainable).source())
            with refuse_fit():
                loop = own_loop(config, load(job.trainable))
            functions = LoopFunctions(
                get_train_fn_utils(),
                job,
                rank,
                # the report that is counted from the checkpoint comes after it
                on_restore=lambda: ray.get(broker.mark_restored.remote(job.key)),
                heartbeat=watch.heartbeat,
                sampler=UsageSampler(job.paths, job.attempt, rank, device, PhaseTimes()),
                on_report=reports.count,
            )
            with functions.measured():
                loop()
            functions.check_restored()
        reports.wait_for_ranks()
    except Exception as e:
        if (shown := without_secrets(e)) is e:
            raise
        raise shown from None


def _enter_folders(job: TrialJob) -> None:
    """Wait for the processes of earlier attempts; the orphan of one ends here."""
    enter_private_folders(job.paths)
    if problem := wait_for_earlier_attempts(job.paths, job.attempt):
        sys.stderr.write(f"warning: {problem}\n")
    if job.superseded:
        raise Superseded(f"attempt {job.attempt} was superseded by a newer one")


def run_attempt(
    job: TrialJob, spec: WorkerGroupSpec, broker: ActorHandle[Broker], *, in_group: bool
) -> str | None:
    """Run a loop to its end, from the newest intact checkpoint if there is one.

    Args:
        in_group: its workers are in the placement group of this process, perhaps started already.

    Returns:
        Why it failed, in one line; None if it did not.
    """
    failed: str | None = None
    try:
        _fit(job, spec, broker, in_group)
    except Exception as e:  # noqa: BLE001 - sent to the driver
        failed = describe_failure(e)
    reports = read_reports(job.paths)
    if reports and reports[-1].attempt == job.attempt and is_last(job, reports[-1]):
        post_event(broker, job, Reported(reports[-1]))  # see `ForwardReports`
    post_event(broker, job, Ended() if failed is None else Failed(failed))
    return failed


def _fit(job: TrialJob, spec: WorkerGroupSpec, broker: ActorHandle[Broker], in_group: bool) -> None:
    restored = prepare_attempt(job.paths, job.attempt, checkpoint_snapshot)
    run = partial(
        run_config,
        job.paths.ray_train_attempt(job.attempt).name,
        str(job.paths.ray_train),
        callbacks=[ForwardReports(job, broker, restored), NodeWatch()],
    )
    try:
        task = {
            "job": job,
            "broker": broker,
            "gpus_per_worker": spec.gpus_per_worker,
            "notices": spec.notices,
        }
        if not in_group:
            start_fewer_actors()
            _call_driver(job, task, spec, run())
            return
        from trainables.launch.ray_train_loops.trainer import (
            FreshTrainer,
            discard_dead_workers,
            worker_environment,
        )

        discard_dead_workers()
        settings = run(**worker_environment(spec))
        fit(user_loop_worker, task, spec, settings, FreshTrainer, check_s=0.2)
    finally:
        last = max((r.step for r in read_reports(job.paths)), default=0)
        add_missing_manifests(job.paths, job.attempt, last)
        prune(job)


def _call_driver(
    job: TrialJob, task: dict[str, Any], spec: WorkerGroupSpec, run: RunConfig
) -> None:
    """Call the user's function that builds a trainer and calls its `fit()`."""
    enter_private_folders(job.paths)
    start_log_filter()
    with output_to(job.paths.attempt(job.attempt) / "driver.log"):
        with refuse_fit():
            driver = load(job.trainable)
        set_environment(spec, check_s=0.2)
        scaling, backend = scaling_config(spec), partial(over_node_network, spec=spec)
        own = user_modules(job.trainable, resolve(job.trainable).source())
        with adopt_trainers(user_loop_worker, task, run, scaling, backend, own):
            driver(job.config)
