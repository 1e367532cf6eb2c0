"""The description of a trial that its workers get, and the channel they report to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from results.checkpoints.retention import Retention
from results.records.trial import Report, read_reports
from results.sweep_folder.copies.checkpoint_mirror import MirrorLocation
from results.trial_paths import TrialPaths
from search_spaces.domains.domain import MAX_COUNT
from search_spaces.layout import Layout
from search_spaces.nested import show
from search_spaces.spec.command import ReportFromSpec
from search_spaces.spec.layout import DDP, LayoutSpec
from search_spaces.spec.select import Objective


class Answer(StrEnum):
    """The driver's answer to a report."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"


@dataclass(frozen=True)
class TrialJob:
    """Everything a worker must know about a trial. Plain data: it crosses processes and machines.

    Attributes:
        trial_id: as in the sweep folder.
        folder: the trial's folder (see `TrialPaths`).
        trainable: registered name, `path/to/script.py:function` or `package.module:function`.
        config: the trainable's hyperparameters, nested.
        seed: the trial's seed.
        attempt: number of this launch, from 1.
        cache: folder for prepared data that trials share.
        workers: ranks of this attempt.
        layout: how they share the model.
        avoid: ids of machines on which no rank may run.
        checkpoint_every: steps between checkpoints.
        checkpoint_async: whether checkpoints are written in the background.
        retention: selects the checkpoints to keep; its metric is the sweep's objective.
        objectives: of the sweep.
        max_t: the scheduler's step at which the trial is complete.
        time_attr: the metric in which the scheduler measures progress.
        rungs: values of that metric at which it may pause the trial, after a checkpoint.
        hang_timeout_s: a rank without report or heartbeat for so long is ended; None: no limit.
        wait_for_room_s: longest wait of a checkpoint on a full disk.
        mirror: object storage for copies of the checkpoints.
        local: folder on each machine, where ranks write checkpoints first; None: they do not.
        redact: names of environment variables that are secret, in addition to the usual ones.
        report_from: where a command's reports come from.
        stop_grace_s: longest time that a command may take to end after SIGTERM.
        cwd: what a command has in its working directory: nothing, or a view of its `project`.
        repetition: name of a repetition of the trial, of which several may run side by side.
    """

    trial_id: str
    folder: str
    trainable: str
    config: dict[str, Any]
    seed: int
    attempt: int
    cache: str
    checkpoint_every: int
    workers: int = 1
    layout: LayoutSpec = DDP
    avoid: tuple[str, ...] = ()
    checkpoint_async: bool = True
    retention: Retention = field(default_factory=Retention)
    objectives: tuple[Objective, ...] = ()
    max_t: int | None = None
    time_attr: str = "step"
    rungs: tuple[int, ...] = ()
    hang_timeout_s: float | None = None
    wait_for_room_s: float = 0.0
    mirror: MirrorLocation | None = None
    local: str | None = None
    redact: tuple[str, ...] = ()
    report_from: ReportFromSpec = field(default_factory=ReportFromSpec)
    stop_grace_s: float = 10.0
    cwd: str = "trial"
    repetition: str = ""

    @property
    def key(self) -> str:
        """Identifies this attempt within its sweep."""
        return f"{self.trial_id}{self.repetition}.{self.attempt}"

    def layout_on(self, ranks: int) -> Layout:
        """How so many ranks share the model."""
        return self.layout.resolve(ranks) if ranks > 1 else Layout()

    @property
    def paths(self) -> TrialPaths:
        """The trial's files."""
        return TrialPaths(Path(self.folder))

    @property
    def superseded(self) -> bool:
        """Whether a newer attempt has begun, or the folder of this one was deleted: then it is
        an orphan and must not write.

        The folder is listed, because NFS remembers for a minute that a file did not exist.
        """
        own, newer = self.paths.attempt(self.attempt), self.paths.attempt(self.attempt + 1)
        try:
            begun = os.listdir(own.parent)
        except FileNotFoundError:
            return True
        return newer.name in begun or own.name not in begun

    def is_last(self, report: Report) -> bool:
        """Whether the trial is complete at a report."""
        return self.max_t is not None and self.retention.time(report) >= self.max_t

    def protected(self, steps: Sequence[int]) -> frozenset[int]:
        """Which of these steps (ascending) keep their checkpoints."""
        reports = (
            {r.step: r for r in read_reports(self.paths)} if self.retention.needs_reports else {}
        )
        return self.retention.protected(steps, reports)


def as_number(name: str, value: object) -> float:
    """A reported value as a number: of Python, numpy, or a tensor with one element.

    Raises:
        TypeError: it is not a number, or, after a warning, beyond the range of floats.
    """
    problem = "is not a number"
    try:
        if not isinstance(value, str | bytes):
            return float(value)  # type: ignore[arg-type]  # the error is what is asked for
    except OverflowError:
        problem = "is beyond the range of floats"
        # callers leave out what is not a number, but this was meant to be one
        warnings.warn(f"metric {name} {problem}", stacklevel=2)
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"metric {name} is {show(value)} ({type(value).__name__}), which {problem}")


def as_step(value: float) -> int:
    """A step as a whole number.

    Raises:
        ValueError: it is none, or beyond those that floats count.
    """
    if not abs(value) <= MAX_COUNT or value != int(value):
        raise ValueError(f"step {show(value)} is no whole number up to 2**53")
    return int(value)


class Pruned(Exception):
    """Raised by training code that gives its trial up: the trial counts as stopped early."""


class Channel(Protocol):
    """Receives the reports of rank 0: a lane's broker under Ray, the terminal in `tune trial`."""

    def report(self, report: Report) -> Answer:
        """Deliver a report and wait for the answer."""
