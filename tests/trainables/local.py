"""Runs a trial in this process, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from results.checkpoints.retention import Retention
from results.checkpoints.trial_mirror import MirrorLocation
from results.records.trial import Report
from trainables import registry
from trainables.job import Answer, TrialJob
from trainables.worker import Worker


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


def make_worker(
    folder: Path,
    trainable: str,
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    attempt: int = 1,
    channel: RecordingChannel | None = None,
    checkpoint_every: int = 1_000_000,
    checkpoint_async: bool = True,
    retention: Retention | None = None,
    cache: Path | None = None,
    rank: int = 0,
    world_size: int = 1,
    mirror: MirrorLocation | None = None,
) -> Worker:
    """One rank of a trial in `folder`, on the CPU."""
    job = TrialJob(
        trial_id=folder.name,
        folder=str(folder),
        trainable=trainable,
        config=dict(config),
        seed=seed,
        attempt=attempt,
        checkpoint_every=checkpoint_every,
        checkpoint_async=checkpoint_async,
        retention=retention or Retention(),
        cache=str(cache or folder.parent / "cache"),
        mirror=mirror,
    )
    return Worker(
        job=job,
        channel=channel or RecordingChannel(),
        device=torch.device("cpu"),
        rank=rank,
        local_rank=rank,
        world_size=world_size,
    )


def run_trial(
    folder: Path, trainable: str, config: Mapping[str, Any], **options: Any
) -> RecordingChannel:
    """Train one trial here; returns its channel. Options are those of `make_worker`."""
    channel: RecordingChannel = options.pop("channel", None) or RecordingChannel()
    worker = make_worker(folder, trainable, config, channel=channel, **options)
    found = registry.resolve(trainable)
    try:
        found.train(found.Config.model_validate(dict(config)), worker)
    finally:
        worker.close()
    return channel
