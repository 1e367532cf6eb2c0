"""Makes the jobs of workers, each for one attempt of a trial, from the sweep's spec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from results.checkpoints.retention import Retention
from results.records.trial import TrialRecord
from search_spaces.spec.command import ReportFromSpec
from search_spaces.spec.layout import DDP
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from trainables.registry import resolve_again
from trainables.runtime.fingerprint import identity
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
    read = () if spec.report_from == ReportFromSpec() else (spec.report_from.model_dump(),)
    source = resolve_again(spec.trainable).source()
    return identity(source, full, seed, workers, *clock, *layout, *read)


def make_job(
    spec: SweepSpec, folder: Path, config: dict[str, Any], seed: int, cache: str, **changes: Any
) -> TrialJob:
    """One attempt of a trial, the first, on one worker.

    Args:
        spec: of the sweep.
        folder: of the trial.
        config: of the trial, before its initial weights are chosen.
        seed: of the trial.
        cache: folder of prepared data.
        changes: other fields of the job.
    """
    limit = spec.failure.hang_timeout
    silence_s = resolve_again(spec.trainable).hang_timeout_s if limit == "auto" else limit
    job = TrialJob(
        trial_id=folder.name,
        folder=str(folder),
        trainable=spec.trainable,
        config=with_init_seed(spec, config, seed),
        seed=seed,
        attempt=1,
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
    return replace(job, **changes)


def make_attempt_job(
    spec: SweepSpec,
    record: TrialRecord,
    folder: Path,
    cache: str,
    *,
    seed: int | None = None,
    config: dict[str, Any] | None = None,
    **changes: Any,
) -> TrialJob:
    """The job of a trial's newest attempt, on as many workers and with the same layout.

    Args:
        folder: of the trial, or of its repetition.
        cache: folder of prepared data.
        seed, config: default: the trial's.
        changes: other fields of the job.
    """
    last = record.attempts[-1]
    given = {"trial_id": record.id, "attempt": last.number, "workers": last.workers}
    return make_job(
        spec,
        folder,
        {**record.config, **record.adjusted} if config is None else config,
        record.seed if seed is None else seed,
        cache,
        **{**given, "layout": layout_section(record, spec), **changes},
    )


def make_rerun_job(
    spec: SweepSpec, record: TrialRecord, folder: Path, cache: str, until: int, **changes: Any
) -> TrialJob:
    """A job that repeats a trial in a folder of its own, with one checkpoint at the end.

    That checkpoint is complete before the driver hears of the last report.

    Args:
        until: the step at which it ends.
        changes: see `make_attempt_job`.
    """
    kept = {"checkpoint_every": max(1, until), "rungs": (until,), "retention": Retention(newest=1)}
    return make_attempt_job(spec, record, folder, cache, **{**kept, "attempt": 1, **changes})


def with_init_seed(spec: SweepSpec, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """A trial's configuration with the seeds that its code reads from there.

    That of the initial weights is shared with `search.shared_init`.
    """
    shared, trainable = spec.search.shared_init, resolve_again(spec.trainable)
    found = trainable.Config.with_init_seed(config, spec.seed if shared else seed)
    return trainable.seeded(found, seed)


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
