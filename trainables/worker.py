"""One rank of a trial, as a trainable sees it: where it runs, resumes, and whom it reports to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from results.checkpoint import (
    Checkpoint,
    commit,
    newest_whole,
    open_staging,
    prune,
    remove_leftovers,
    staging,
)
from results.faultpoints import reached
from results.paths import TrialPaths
from results.records import Report, append_report

if TYPE_CHECKING:
    import torch

SaveFn = Callable[[Path], None]
"""Writes this rank's part of a checkpoint into a folder that all ranks share."""


class Answer(StrEnum):
    """What a trial is told after each report."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


@dataclass(frozen=True)
class TrialJob:
    """Everything a worker must know of a trial. Plain data: it crosses processes and machines.

    Attributes:
        trial_id: as in the sweep folder.
        folder: the trial's folder (see `TrialPaths`).
        trainable: registered name, `path/to/script.py:function` or `package.module:function`.
        config: the trainable's hyperparameters, nested.
        seed: of the trial.
        attempt: number of this launch, from 1.
        checkpoint_every: steps between checkpoints.
        checkpoint_keep: how many of the newest are kept.
        cache: folder for prepared data that trials share.
        time_attr: the metric that the scheduler counts by.
    """

    trial_id: str
    folder: str
    trainable: str
    config: dict[str, Any]
    seed: int
    attempt: int
    checkpoint_every: int
    checkpoint_keep: int
    cache: str
    time_attr: str = "step"

    @property
    def key(self) -> str:
        """Names this attempt within its sweep."""
        return f"{self.trial_id}.{self.attempt}"

    @property
    def paths(self) -> TrialPaths:
        """The trial's files."""
        return TrialPaths(Path(self.folder))

    @property
    def superseded(self) -> bool:
        """A newer attempt of the trial was begun: this one is an orphan and must not write."""
        return self.paths.attempt(self.attempt + 1).exists()


class Channel(Protocol):
    """Who listens to rank 0: a lane's mailbox under Ray, the terminal in `tune trial`."""

    def report(self, report: Report) -> Answer:
        """Deliver a report and wait for what to do next."""
        ...


@dataclass
class Worker:
    """One rank of a trial.

    Attributes:
        job: the trial.
        rank, world_size, local_rank: as torch.distributed counts them.
        device: where this rank computes.
        channel: asked by rank 0 only.
    """

    job: TrialJob
    channel: Channel
    device: torch.device
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    _last_checkpoint: int = field(default=0, init=False)
    _last_step: int = field(default=-1, init=False)

    @property
    def seed(self) -> int:
        """The trial's seed, the same on every rank."""
        return self.job.seed

    @property
    def cache(self) -> Path:
        """Folder for prepared data that all trials and workers share."""
        return Path(self.job.cache)

    def resume(self) -> Checkpoint | None:
        """The newest whole checkpoint of this trial, or None for a fresh start."""
        found = newest_whole(self.job.paths)
        if found is not None:
            self._last_checkpoint = self._last_step = found.step
        if self.rank == 0:
            remove_leftovers(self.job.paths)
        self.barrier()
        return found

    def report(
        self,
        *,
        step: int,
        metrics: Mapping[str, float],
        checkpoint: SaveFn | None = None,
        final: bool = False,
    ) -> Answer:
        """Report the mean of the ranks' metrics at a step; save a checkpoint when one is due.

        Args:
            step: the trainable's own clock; strictly increasing, also over resumes.
            metrics: of this rank. All ranks give the same names. Values that are already equal on
                all ranks stay what they are.
            checkpoint: writes this rank's part of a checkpoint into the folder it is given; called
                on every rank, only when a checkpoint is due: every `checkpoint.every` steps, at
                the `final` report, and when the answer ends the trial.
            final: this is the trial's last report.

        Returns:
            The same answer on every rank.
        """
        if step <= self._last_step:
            raise ValueError(f"steps must increase: reported {step} after {self._last_step}")
        self._last_step = step
        report = Report(
            step=step, metrics=self.mean(metrics), attempt=self.job.attempt, time=time.time()
        )
        if self.rank == 0:
            self._check_owner()
            append_report(self.job.paths, report)  # first: a resume skips what a checkpoint holds
        due = final or step - self._last_checkpoint >= self.job.checkpoint_every
        if checkpoint is not None and due:
            self._save(step, checkpoint)
        answer = self._agree(self.channel.report(report) if self.rank == 0 else Answer.CONTINUE)
        if checkpoint is not None and not due and answer is not Answer.CONTINUE:
            self._save(step, checkpoint)
        return answer

    def mean(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Mean over the ranks of each value, in float64."""
        if self.world_size == 1:
            return {k: float(v) for k, v in metrics.items()}
        return {k: v / self.world_size for k, v in self.sum(metrics).items()}

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum over the ranks of each value, in float64."""
        names = sorted(values)
        if self.world_size == 1:
            return {k: float(values[k]) for k in names}
        import torch
        import torch.distributed as dist

        total = torch.tensor([values[k] for k in names], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.sum({"": 0.0})

    def _check_owner(self) -> None:
        if self.job.superseded:
            raise RuntimeError(f"attempt {self.job.attempt} was superseded by a newer one")

    def _agree(self, answer: Answer) -> Answer:
        order = list(Answer)
        return order[int(self.sum({"": order.index(answer) if self.rank == 0 else 0})[""])]

    def _save(self, step: int, save: SaveFn) -> None:
        folder = staging(self.job.paths, step, self.job.attempt)
        if self.rank == 0:
            open_staging(folder)
        self.barrier()
        save(folder)
        self.barrier()
        reached("checkpoint:saved")
        if self.rank == 0:
            commit(folder, self.job.paths.checkpoint(step), step=step)
            prune(self.job.paths, keep=self.job.checkpoint_keep, committed=step)
        self.barrier()
        self._last_checkpoint = step
