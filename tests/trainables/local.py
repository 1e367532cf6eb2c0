"""Runs trials in this process, without Ray, and programs in fresh ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from results.checkpoints.commit import Checkpoint, newest_intact
from results.records.trial import Report
from results.trial_paths import TrialPaths
from trainables.job import Answer, TrialJob
from trainables.launch.run_trial import run_trial as run_job
from trainables.worker import Worker

ROOT = Path(__file__).parents[2]


@dataclass
class RecordingChannel:
    """Keeps every report; answers CONTINUE, or what `answers` says for a step."""

    answers: Mapping[int, Answer] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)

    def report(self, report: Report) -> Answer:
        self.reports.append(report)
        return self.answers.get(report.step, Answer.CONTINUE)

    @property
    def curve(self) -> dict[int, dict[str, float]]:
        """Metrics by step, without those that measure time."""
        return {r.step: without_timing(r.metrics) for r in self.reports}


def without_timing(metrics: Mapping[str, float]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if not k.endswith("_per_second")}


def make_job(
    folder: Path, trainable: str = "digits", config: Mapping[str, Any] | None = None, **options: Any
) -> TrialJob:
    """A trial in `folder`; options are fields of `TrialJob`."""
    given: dict[str, Any] = {"seed": 0, "attempt": 1, "checkpoint_every": 1_000_000, **options}
    cache = str(given.pop("cache", folder.parent / "cache"))
    return TrialJob(folder.name, str(folder), trainable, dict(config or {}), cache=cache, **given)


def make_worker(folder: Path, *, channel: RecordingChannel | None = None, **options: Any) -> Worker:
    """The only rank of a trial of `digits`, on the CPU; options are those of `make_job`."""
    return Worker(make_job(folder, **options), channel or RecordingChannel(), torch.device("cpu"))


def run_trial(
    folder: Path,
    trainable: str,
    config: Mapping[str, Any],
    *,
    channel: RecordingChannel | None = None,
    rank: int = 0,
    world_size: int = 1,
    **options: Any,
) -> RecordingChannel:
    """Train one trial here; returns its channel. Other options are those of `make_job`."""
    channel = channel or RecordingChannel()
    job = make_job(folder, trainable, config, **options)
    run_job(job, channel, torch.device("cpu"), rank=rank, world_size=world_size, local_rank=rank)
    return channel


def newest_checkpoint(folder: Path) -> Checkpoint:
    """The newest intact checkpoint of a trial, which must have one."""
    found = newest_intact(TrialPaths(folder))
    assert found is not None
    return found


def run_python(*args: str | Path, timeout_s: float = 250) -> str:
    """Run Python with these arguments in the repository's folder; returns what it prints."""
    done = subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
