"""One rank of a trial, as a trainable sees it: device, resume, report and communication."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from results.checkpoints.checkpoint_times import append_time
from results.checkpoints.cleanup import quarantine_damaged, remove_leftovers
from results.checkpoints.commit import Checkpoint, Manifest, verify
from results.records.reports import Report, ReportWriter
from search_spaces.redaction import redact_name
from trainables.checkpointing.checkpoint_schedule import CheckpointSchedule
from trainables.checkpointing.saver import SaveFn, Saver, Superseded
from trainables.checkpointing.uploads import restore_newest
from trainables.job import Answer, Channel, TrialJob, as_number, as_step
from trainables.parallel.mesh import Mesh, RankSums
from trainables.runtime.device_meter import DeviceMeter
from trainables.runtime.preemption import (
    LeaveCheck,
    Preempted,
    preemption_reason,
    preemption_requested,
)
from trainables.runtime.provenance import ProvenanceRecorder
from trainables.runtime.sampler import PhaseTimes, UsageSampler
from trainables.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    import torch


@dataclass
class Worker(RankSums):
    """One rank of a trial.

    Attributes:
        job: the trial.
        channel: receives reports; used by rank 0 only.
        device: the device of this rank.
        rank, world_size, local_rank: as in torch.distributed.
        on_report: called when a report begins on this rank.
        mesh: the place of this rank in the trial's layout.
        saver: saves this rank's checkpoints.
        times: where this rank's time goes; `with worker.times.of("data"):` counts a block.
    """

    job: TrialJob
    channel: Channel
    device: torch.device
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    on_report: Callable[[], None] = lambda: None
    mesh: Mesh = field(init=False)
    saver: Saver = field(init=False)
    _last_step: int = field(default=-1, init=False)
    _schedule: CheckpointSchedule = field(init=False)
    _reports: ReportWriter = field(init=False)
    times: PhaseTimes = field(default_factory=PhaseTimes, init=False)
    _provenance: ProvenanceRecorder = field(init=False)
    _sampler: UsageSampler = field(init=False)
    _watchdog: Watchdog = field(init=False)
    _loading: tuple[float, Manifest] | None = field(default=None, init=False)
    _leaves: LeaveCheck = field(init=False)

    def __post_init__(self) -> None:
        # its absence later says that somebody has deleted the trial
        self.job.paths.attempt(self.job.attempt).mkdir(parents=True, exist_ok=True)
        self.mesh = Mesh(self.job.layout_on(self.world_size), self.rank, self.device)
        self._watchdog = Watchdog(self.job.hang_timeout_s)
        self._schedule = CheckpointSchedule(self.job)
        self._leaves = LeaveCheck(self.sum_all, self.world_size)
        attempt = self.job.paths, self.job.attempt
        self._reports = ReportWriter(*attempt)
        self.saver = Saver(self.job, self.rank, self.world_size)
        self._provenance = ProvenanceRecorder(*attempt, self.device, self.world_size)
        self._sampler = UsageSampler(*attempt, self.rank, self.device, self.times)

    def begin(self, source: Mapping[str, str], meter: DeviceMeter | None = None) -> None:
        """Record code, versions and hardware; once per attempt, before training.

        Args:
            source: digests of the training code's files, see `Trainable.source`.
            meter: of the device.
        """
        self._sampler.meter = meter or dict
        if self.rank == 0:
            self._provenance.begin(source)

    def log_dataset(self, fingerprint: str) -> None:
        """Record a digest of the data, which `tune reproduce` compares."""
        if self.rank == 0:
            self._provenance.log_dataset(fingerprint)

    @property
    def seed(self) -> int:
        """The trial's seed, the same on every rank."""
        return self.job.seed

    @property
    def cache(self) -> Path:
        """Folder of prepared data, shared by all trials and workers."""
        return Path(self.job.cache)

    def resume(self) -> Checkpoint | None:
        """The newest intact checkpoint of this trial, or None for a fresh start.

        Damaged checkpoints are renamed and logged. All ranks get the same checkpoint.

        Raises:
            Preempted: this or another process of the trial was asked to terminate.
        """
        began = time.perf_counter()
        self.heartbeat()
        self._leave_if(self.sum_all({"": float(preemption_requested())})[""] > 0)
        paths, step = self.job.paths, -1.0
        if self.rank == 0:
            intact = quarantine_damaged(paths)
            remove_leftovers(paths)
            step = newest.step if (newest := restore_newest(self.job, intact)) else -1.0
        agreed = int(self.sum_all({"step": step if self.rank == 0 else 0.0})["step"])
        self.times.started()
        if agreed < 0:
            return None
        self._last_step = agreed
        self._schedule.resumed(agreed)
        folder = paths.checkpoint(agreed)
        found = Checkpoint(agreed, folder, verify(folder, hashes=False))
        self._loading = began, found.manifest
        return self.saver.place.nearest(found)

    def begin_again(self) -> None:
        """The code does not go on from the checkpoint that `resume` found."""
        self._last_step, self._schedule = -1, CheckpointSchedule(self.job)

    def loaded(self) -> None:
        """The state of the checkpoint that `resume` found is in place: record how long it took."""
        if self._loading is not None and self.rank == 0:
            began, manifest = self._loading
            append_time(
                self.job.paths, self.job.attempt, "load", time.perf_counter() - began, manifest
            )
        self._loading = None

    def report(
        self,
        *,
        step: int,
        metrics: Mapping[str, float],
        checkpoint: SaveFn | None = None,
        final: bool = False,
        save_now: bool = False,
        as_reported: bool = False,
    ) -> Answer:
        """Report the mean of the ranks' metrics; save a checkpoint if one is due.

        Args:
            step: the trainable's own clock; strictly increasing, also over resumes.
            metrics: of this rank. All ranks give the same names.
            checkpoint: saves this rank's part in a folder. Called on every rank, only when one is
                due: every `checkpoint.every` steps, at the last report, and when the answer ends
                the trial. It may return a function that writes a copy while training goes on.
            final: whether this is the trial's last report.
            save_now: whether the checkpoint is saved although none is due.
            as_reported: whether the metrics are the same on all ranks, and the code decides itself
                when it saves: a process that was asked to terminate leaves only where it does.

        Returns:
            The same on every rank; unless it is CONTINUE, the step's checkpoint is complete.

        Raises:
            TypeError, ValueError: a metric is not a number; steps do not increase.
            Preempted: a process was asked to terminate; the newest checkpoint is complete.
        """
        self.times.started()
        with self.times.of("report"):
            report = self._record(step, metrics, as_reported)
        ends = final or self.job.is_last(report)
        unsaved = self._save_if_due(report, checkpoint, ends, save_now)
        with self.times.of("report"):
            answer, leave = self._ask(report)
        leave = leave and (save_now or not as_reported)
        self._after_answer(answer, report, unsaved, ends, leave)
        return answer

    def watch_output(self) -> None:
        """From now on, what this rank prints is a sign of life too."""
        self._watchdog.follow(self.job.paths.log(self.job.attempt, self.rank))

    def leave_if_told(self, step: int, checkpoint: SaveFn) -> None:
        """Between two reports: save and leave at this step if a process was asked to terminate.

        For trainables whose reports are further apart than a cloud's notice. Every rank calls it
        after each step without a report, and resumes from such a checkpoint as from another one.
        Cheap enough for every step: the ranks ask each other about every five seconds.

        Raises:
            Preempted: the checkpoint of this step is complete.
        """
        if self._leaves.step():
            self._save(step, checkpoint, wait=True)
            self._last_step = step
            self._leave_if(True)

    def heartbeat(self) -> None:
        """Tell the watchdog that this rank is alive, if the time between two reports may be long.

        Cheap enough for every step. A report is a sign of life too.
        """
        self._watchdog.heartbeat()
        if self._last_step >= 0:
            self._sampler.sample(self._last_step)

    def close(self) -> None:
        """Finish the checkpoint in progress; the trial is over on this rank."""
        self._watchdog.close()
        self.saver.close()
        self.mesh.close()
        self._sampler.sample(max(0, self._last_step), last=True)

    def _record(self, step: int, metrics: Mapping[str, float], as_reported: bool) -> Report:
        """Write the report of a step to the trial's folder."""
        self.heartbeat()
        if not as_reported:
            self.on_report()
        step = as_step(step)
        if step <= self._last_step:
            raise ValueError(f"steps must increase: reported {step} after {self._last_step}")
        metrics = {redact_name(name): as_number(name, value) for name, value in metrics.items()}
        self._last_step = step
        self.saver.wait()  # the checkpoint of an earlier report comes first
        shared = metrics if as_reported else self.mean(metrics)
        report = Report(step=step, metrics=shared, attempt=self.job.attempt, time=time.time())
        if self.rank == 0:
            self._check_owner()
            self._reports.append(report)  # first: a resume starts after the checkpoint
        self._sampler.sample(step)
        return report

    def _check_owner(self) -> None:
        if self.job.superseded:
            raise Superseded(f"attempt {self.job.attempt} was superseded by a newer one")

    def _ask(self, report: Report) -> tuple[Answer, bool]:
        """The driver's answer, and whether any rank got SIGTERM; the same on every rank."""
        self._watchdog.suspend()  # waiting for the driver is not limited
        answer = self.channel.report(report) if self.rank == 0 else Answer.CONTINUE
        if self.rank == 0:
            self.heartbeat()
        order = list(Answer)
        index = order.index(answer) if self.rank == 0 else 0
        agreed = self.sum_all({"answer": index, "leave": float(preemption_requested())})
        self.heartbeat()
        return order[int(agreed["answer"])], agreed["leave"] > 0

    def _leave_if(self, leave: bool) -> None:
        if leave:
            raise Preempted(f"{preemption_reason()}; left after step {max(0, self._last_step)}")

    def _save_if_due(
        self, report: Report, save: SaveFn | None, ends: bool, now: bool
    ) -> SaveFn | None:
        """Save a checkpoint if one is due; else return what saves it when the trial ends here."""
        save = save if self._schedule.is_finite(report) else None
        last = ends or self._schedule.may_pause(report)
        if not (self._schedule.is_due(report) or last or now):
            return save
        self._save(report.step, save, wait=last)
        return None

    def _after_answer(
        self, answer: Answer, report: Report, unsaved: SaveFn | None, ends: bool, leave: bool
    ) -> None:
        if answer is not Answer.CONTINUE or leave:
            self._save(report.step, unsaved)
            self.saver.drain()  # the trial can resume from here
        if ends or answer is Answer.STOP:
            self.saver.place.discard()
        self._leave_if(leave and answer is Answer.CONTINUE and not ends)

    def _save(self, step: int, save: SaveFn | None, *, wait: bool = False) -> None:
        if save is None:
            return
        with self.times.of("checkpoint"):
            self.saver.begin(step, save, self.barrier)
            self._schedule.saved(step)
            if wait:  # the driver gets the last report after the checkpoint is complete
                self.saver.drain()
