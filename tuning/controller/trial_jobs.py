"""Makes the jobs of workers, each for one attempt of a trial, from the sweep's spec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from results.checkpoints.retention import Retention
from results.records.trial import TrialRecord
from results.sweep_folder.copies.checkpoint_mirror import MirrorLocation
from results.trial_paths import TrialPaths
from search_spaces.spec.layout import DDP
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from trainables.registry import resolve_again
from trainables.runtime.fingerprint import identity
from tuning.controller.resources.placement import Allocation
from tuning.controller.resources.trial_layouts import layout_section


def trial_identity(spec: SweepSpec, config: dict[str, Any], seed: int) -> str:
    """A digest of everything that determines the result of a trial: code, data, config, seed."""
    clock = spec.scheduler.time_attr, spec.scheduler.max_t
    full = with_init_seed(spec, config, seed)
    request = spec.resources
    elastic = [request.min_workers, request.max_workers]
    workers = elastic if request.elastic else request.max_workers
    section = request.layout if isinstance(request.layout, str) else request.layout.model_dump()
    layout = () if request.layout == DDP else (section,)
    return identity(resolve_again(spec.trainable).source(), full, seed, workers, *clock, *layout)


def make_job(
    spec: SweepSpec,
    *,
    trial_id: str,
    folder: Path,
    config: dict[str, Any],
    seed: int,
    attempt: int,
    cache: str,
) -> TrialJob:
    """One attempt of a trial, on one worker.

    Args:
        spec: of the sweep.
        trial_id, folder: of the trial.
        config: of the trial, before its initial weights are chosen.
        seed: of the trial.
        attempt: number of the attempt, from 1.
        cache: folder of prepared data.
    """
    limit = spec.failure.hang_timeout
    silence_s = resolve_again(spec.trainable).hang_timeout_s if limit == "auto" else limit
    return TrialJob(
        trial_id=trial_id,
        folder=str(folder),
        trainable=spec.trainable,
        config=with_init_seed(spec, config, seed),
        seed=seed,
        attempt=attempt,
        cache=cache,
        layout=spec.resources.written_layout,
        checkpoint_every=spec.checkpoint.every,
        checkpoint_async=spec.checkpoint.mode == "async",
        retention=checkpoints_to_keep(spec),
        objectives=spec.objectives,
        max_t=spec.scheduler.max_t,
        time_attr=spec.scheduler.time_attr,
        hang_timeout_s=silence_s,
        # a rank that waits for disk space is silent, and must not count as hanging
        wait_for_room_s=min(spec.checkpoint.wait_for_room, silence_s / 2),
        local=spec.checkpoint.local,
        redact=tuple(spec.redact),
        report_from=spec.report_from,
        stop_grace_s=spec.failure.stop_grace,
        cwd=spec.cwd,
    )


def make_attempt_job(
    spec: SweepSpec,
    record: TrialRecord,
    files: TrialPaths,
    allocation: Allocation,
    cache: str,
    rungs: tuple[int, ...],
    mirror: MirrorLocation | None,
) -> TrialJob:
    """The job of a trial's newest attempt.

    Args:
        spec: of the sweep.
        record, files: of the trial.
        allocation: resources of the attempt.
        cache: folder of prepared data.
        rungs: steps at which the trial may be paused.
        mirror: object storage for copies of the checkpoints.
    """
    job = make_job(
        spec,
        trial_id=record.id,
        folder=files.root,
        config={**record.config, **record.adjusted},
        seed=record.seed,
        attempt=record.attempts[-1].number,
        cache=cache,
    )
    workers, avoid = allocation.workers, allocation.avoid
    layout = layout_section(record, spec)
    return replace(job, workers=workers, layout=layout, avoid=avoid, rungs=rungs, mirror=mirror)


def with_init_seed(spec: SweepSpec, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """A trial's configuration with the seeds that its code reads from there.

    That of the initial weights is shared with `search.shared_init`.
    """
    shared, trainable = spec.search.shared_init, resolve_again(spec.trainable)
    found = trainable.Config.with_init_seed(config, spec.seed if shared else seed)
    return trainable.seeded(found, seed)


def make_rerun_job(
    spec: SweepSpec,
    record: TrialRecord,
    files: TrialPaths,
    cache: str,
    until: int,
    *,
    seed: int | None = None,
    config: dict[str, Any] | None = None,
) -> TrialJob:
    """A job that repeats a trial in a folder of its own, with one checkpoint at the end.

    That checkpoint is complete before the driver hears of the last report.

    Args:
        spec: of the sweep.
        record: of the trial.
        files: of the repetition.
        cache: folder of prepared data.
        until: the step at which it ends.
        seed, config: default: the trial's.
    """
    job = make_job(
        spec,
        trial_id=record.id,
        folder=files.root,
        config={**record.config, **record.adjusted} if config is None else config,
        seed=record.seed if seed is None else seed,
        attempt=1,
        cache=cache,
    )
    return replace(
        job,
        workers=record.attempts[-1].workers,
        layout=layout_section(record, spec),
        checkpoint_every=max(1, until),
        rungs=(until,),
        retention=Retention(newest=1),
    )


def checkpoints_to_keep(spec: SweepSpec) -> Retention:
    """The checkpoints of a trial that its sweep file keeps."""
    return Retention(
        newest=spec.checkpoint.keep,
        best=spec.checkpoint.keep_best,
        metric=spec.metric,
        mode=spec.mode,
        rungs=spec.scheduler.rung_steps if spec.checkpoint.keep_rungs else (),
        clock=spec.scheduler.time_attr,
    )
