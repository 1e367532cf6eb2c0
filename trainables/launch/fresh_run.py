"""Runs a train loop that was written for Ray Train's public API, unchanged.

Such a loop calls `ray.train.report` and `ray.train.get_checkpoint`; Ray Train keeps its
checkpoints, and we see to it that the loop goes on from the newest whole one. It always gets a
`TorchTrainer` of its own, and learns that it was stopped by being ended.
"""

from __future__ import annotations

import inspect
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.train import CheckpointConfig, UserCallback

from results.records.trial import Report, append_report, read_reports
from trainables.job import TrialJob
from trainables.launch.broker import Broker
from trainables.launch.events import Ended, Event, Failed, Reported
from trainables.launch.ray_train import (
    WorkerGroupSpec,
    checkpoint_snapshot,
    describe_failure,
    fit,
    run_config,
    this_machine,
)
from trainables.launch.run_trial import output_to
from trainables.registry import resolve
from trainables.runtime.provenance import ProvenanceRecorder
from trainables.user_code.loader import load
from trainables.user_code.ray_train_checkpoints import (
    add_manifest,
    add_missing_manifests,
    prepare_attempt,
)

if TYPE_CHECKING:
    from ray.actor import ActorHandle


def foreign_loop(config: dict[str, Any]) -> None:
    """Run the user's loop on this worker, with its output in the trial's log."""
    import ray.train
    import torch
    from ray.util.placement_group import get_current_placement_group

    job: TrialJob = config["job"]
    at = ray.train.get_context()
    rank = at.get_world_rank()
    if rank == 0:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        ProvenanceRecorder(job.paths, job.attempt, device, at.get_world_size()).begin(
            resolve(job.trainable).source()
        )
    config["broker"].register_worker.remote(
        job.key, rank, this_machine(), get_current_placement_group()
    )
    loop = load(job.trainable)
    with output_to(job.paths.log(job.attempt, rank)):
        loop(job.config) if inspect.signature(loop).parameters else loop()


class ForwardReports(UserCallback):
    """Records rank 0's reports and posts them to the broker, from the Train controller.

    The step is the metric that the scheduler counts by (`time_attr`); a loop that does not report
    it is counted by its reports.
    """

    def __init__(self, job: TrialJob, broker: ActorHandle[Broker]) -> None:
        self._job, self._broker = job, broker
        self._sealing: threading.Thread | None = None
        self._step = max((r.step for r in read_reports(job.paths)), default=0)

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any
    ) -> None:
        """Called by the controller once all ranks have reported."""
        if self._job.superseded:
            return
        said = metrics[0]
        self._step = int(said.get(self._job.time_attr, self._step + 1))
        numbers = {k: float(v) for k, v in said.items() if isinstance(v, int | float)}
        report = Report(
            step=self._step, metrics=numbers, attempt=self._job.attempt, time=time.time()
        )
        append_report(self._job.paths, report)
        if checkpoint is not None:
            self._seal(Path(checkpoint.path), self._step)
        self._broker.post_event.remote(self._job.key, Reported(report))

    def _seal(self, folder: Path, step: int) -> None:
        """Behind the training: one at a time, in the order in which they came."""
        before = self._sealing

        def seal() -> None:
            if before is not None:
                before.join()
            add_manifest(self._job.paths, folder, step)

        self._sealing = threading.Thread(target=seal, name="seal", daemon=True)
        self._sealing.start()


class FreshRun:
    """One `TorchTrainer` for one attempt: an actor of its own, so that killing it ends the run."""

    def fit(self, job: TrialJob, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> str | None:
        """Run the loop to its end, from the newest whole checkpoint if there is one.

        Returns:
            How it failed, one line.
        """
        failed: str | None = None
        try:
            self._fit(job, spec, broker)
        except Exception as e:  # noqa: BLE001 - told to the driver
            failed = describe_failure(e)
        event: Event = Ended() if failed is None else Failed(failed)
        broker.post_event.remote(job.key, event)
        return failed

    def _fit(self, job: TrialJob, spec: WorkerGroupSpec, broker: ActorHandle[Broker]) -> None:
        prepare_attempt(job.paths, job.attempt, job.retention.newest, checkpoint_snapshot)
        run = run_config(
            job.paths.ray_train_attempt(job.attempt).name,
            str(job.paths.ray_train),
            checkpoint_config=CheckpointConfig(num_to_keep=job.retention.newest),
            callbacks=[ForwardReports(job, broker)],
        )
        try:
            fit(foreign_loop, {"job": job, "broker": broker}, spec, run)
        finally:
            last = max((r.step for r in read_reports(job.paths)), default=0)
            add_missing_manifests(job.paths, job.attempt, last)
