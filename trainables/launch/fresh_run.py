"""Runs a user's train loop, written for Ray Train's public API, without changes to it.

The loop calls `ray.train.report` and `ray.train.get_checkpoint`. Ray Train keeps its checkpoints;
this module makes it resume from the newest intact one. Each attempt gets its own `TorchTrainer`.
Stopping a trial ends its processes without asking the loop.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.train import CheckpointConfig, UserCallback

from results.records.reports import Report, ReportWriter, read_reports
from results.storage.log_filter import start_log_filter
from search_spaces.redaction import also_redact
from trainables.job import TrialJob, as_number
from trainables.launch.broker import Broker
from trainables.launch.events import Ended, Event, Failed, Reported
from trainables.launch.ray_train import (
    WorkerGroupSpec,
    checkpoint_snapshot,
    claim_device,
    describe_failure,
    fit,
    run_config,
    this_machine,
    without_secrets,
)
from trainables.launch.run_trial import output_to
from trainables.registry import resolve
from trainables.runtime.provenance import ProvenanceRecorder
from trainables.user_code.loader import load
from trainables.user_code.private_folders import enter_private_folders
from trainables.user_code.ray_train_checkpoints import (
    add_manifest,
    add_missing_manifests,
    prepare_attempt,
)

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.train import Checkpoint


_NOT_RESTORED = (
    "warning: this attempt had a checkpoint, and the loop did not ask for it by "
    "ray.train.get_checkpoint(); it began again\n"
)


def user_loop_worker(config: dict[str, Any]) -> None:
    """Run the user's loop on this worker, with its output in the trial's log."""
    import ray.train
    from ray.util.placement_group import get_current_placement_group

    job: TrialJob = config["job"]
    start_log_filter()
    also_redact(job.redact)
    context = ray.train.get_context()
    rank = context.get_world_rank()
    device = claim_device(config["gpus_per_worker"])
    if rank == 0:
        recorder = ProvenanceRecorder(job.paths, job.attempt, device, context.get_world_size())
        recorder.begin(resolve(job.trainable).source())
    config["broker"].register_worker.remote(
        job.key, rank, this_machine(), get_current_placement_group()
    )
    enter_private_folders(job.paths)
    given = ray.train.get_checkpoint() is not None
    asked = _watch_get_checkpoint(job.key, config["broker"])
    try:
        with output_to(job.paths.log(job.attempt, rank)):
            loop = load(job.trainable)
            loop(job.config) if inspect.signature(loop).parameters else loop()
            if given and not asked.is_set():
                sys.stderr.write(_NOT_RESTORED)
    except Exception as e:
        if (shown := without_secrets(e)) is e:
            raise
        raise shown from None


def _watch_get_checkpoint(key: str, broker: ActorHandle[Broker]) -> threading.Event:
    """The event is set, and the broker informed, when this worker asks for its checkpoint."""
    import ray
    from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils

    functions, asked = get_train_fn_utils(), threading.Event()
    original = functions.get_checkpoint

    def get_checkpoint() -> Checkpoint | None:
        if not asked.is_set():
            asked.set()
            ray.get(broker.mark_restored.remote(key))  # before the report that is counted from it
        return original()

    functions.get_checkpoint = get_checkpoint  # type: ignore[method-assign]
    return asked


class ForwardReports(UserCallback):
    """Records rank 0's reports and posts them to the broker, from the Train controller.

    The step is the metric in which the scheduler measures progress (`time_attr`). If the loop does
    not report it, its reports are counted, from the checkpoint that it asked for.

    Args:
        restored: step of the checkpoint that Ray Train gives the loop; None if there is none.
    """

    def __init__(self, job: TrialJob, broker: ActorHandle[Broker], restored: int | None) -> None:
        self._job, self._broker, self._restored = job, broker, restored
        self._reports = ReportWriter(job.paths, job.attempt)
        self._hashing: threading.Thread | None = None
        self._step: int | None = None

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        """Called by the controller once all ranks have reported."""
        if self._job.superseded:
            return
        reported = metrics[0]
        if self._step is None:
            self._step = self._first_step()
        self._step = int(reported.get(self._job.time_attr, self._step + 1))
        numbers = dict(_numbers(reported, self._job.retention.metric))
        report = Report(
            step=self._step, metrics=numbers, attempt=self._job.attempt, time=time.time()
        )
        self._reports.append(report)
        if checkpoint is not None:
            self._add_manifest(Path(checkpoint.path), self._step)
        self._broker.post_event.remote(self._job.key, Reported(report))

    def _first_step(self) -> int:
        """The step at which the loop began: that of its checkpoint, if it asked for it."""
        import ray

        asked = bool(ray.get(self._broker.is_restored.remote(self._job.key)))
        return self._restored or 0 if asked else 0

    def _add_manifest(self, folder: Path, step: int) -> None:
        """Hash a checkpoint in the background: one at a time, in order."""
        before = self._hashing

        def hash_files() -> None:
            if before is not None:
                before.join()
            add_manifest(self._job.paths, folder, step)

        self._hashing = threading.Thread(target=hash_files, name="hash", daemon=True)
        self._hashing.start()


def _numbers(reported: dict[str, Any], metric: str) -> Iterator[tuple[str, float]]:
    """The reported numbers; a loop may report other values too, but not as the sweep's metric."""
    for name, value in reported.items():
        try:
            yield name, as_number(name, value)
        except TypeError:
            if name == metric:
                raise


class FreshRun:
    """One `TorchTrainer` for one attempt: an actor of its own, so that killing it ends the run."""

    def fit(self, job: TrialJob, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> str | None:
        """Run the loop to its end, from the newest intact checkpoint if there is one.

        Returns:
            Why it failed, in one line; None if it did not.
        """
        failed: str | None = None
        try:
            self._fit(job, spec, broker)
        except Exception as e:  # noqa: BLE001 - sent to the driver
            failed = describe_failure(e)
        event: Event = Ended() if failed is None else Failed(failed)
        broker.post_event.remote(job.key, event)
        return failed

    def _fit(self, job: TrialJob, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> None:
        newest = job.retention.newest
        restored = prepare_attempt(job.paths, job.attempt, newest, checkpoint_snapshot)
        run = run_config(
            job.paths.ray_train_attempt(job.attempt).name,
            str(job.paths.ray_train),
            checkpoint_config=CheckpointConfig(num_to_keep=newest),
            callbacks=[ForwardReports(job, broker, restored)],
        )
        try:
            task = {"job": job, "broker": broker, "gpus_per_worker": spec.gpus_per_worker}
            fit(user_loop_worker, task, spec, run)
        finally:
            last = max((r.step for r in read_reports(job.paths)), default=0)
            add_missing_manifests(job.paths, job.attempt, last)
