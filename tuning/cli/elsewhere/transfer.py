"""`tune sync` sends runs to MLflow; `tune fetch` downloads checkpoints from object storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.damage import print_damage
from tuning.cli.formatting import echo
from tuning.cli.options import StorageDir, Sweep, Trust, trusted_sweep

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.pipeline import PipelinePaths

DELIVERY_TIMEOUT_S = 600.0


def sync(sweep: Sweep, trust: Trust = False, storage: StorageDir = None) -> None:
    """Send to MLflow what it did not receive; nothing twice.

    Of a pipeline: all its stages, and what each began with.

    Example: tune sync llm
    """
    from results.sweep_folder.folder import sweep_argument
    from tuning.pipelines.folder import find_pipeline

    if (pipeline := find_pipeline(sweep, storage)) is not None:
        damaged, name = _sync_pipeline(pipeline, trust), pipeline.name
    else:
        paths = trusted_sweep(sweep, storage, trust)
        damaged, name = _sync_sweep(paths), sweep_argument(paths)
    echo(f"{name} is delivered; look at it: tune ui {name}")
    if damaged:
        raise typer.Exit(DamagedRecordsError.exit_code)


def _sync_sweep(paths: SweepPaths) -> bool:
    """Deliver a sweep; returns whether records of it are damaged."""
    from results.records.integrity import check_records
    from results.records.spec_file import read_spec
    from results.sweep_folder.folder import sweep_argument
    from tuning.controller.tracking.observer import deliver

    spec = read_spec(paths)
    if spec.tracking.name == "none":
        raise UserError(f"{paths.name}: its sweep.yaml says tracking: {{name: none}}")
    damaged = print_damage(check_records(paths))
    if undelivered := deliver(spec, paths, DELIVERY_TIMEOUT_S):
        raise UserError(f"{undelivered}; try again: tune sync {sweep_argument(paths)}")
    return damaged


def _sync_pipeline(paths: PipelinePaths, trust: bool) -> bool:
    """Deliver the tracked stages of a pipeline, then the pipeline's own runs."""
    from results.sweep_folder.folder import pipeline_argument
    from results.sweep_folder.lock import acquire_lock
    from search_spaces.pipeline.loading import load_pipeline
    from tuning.pipelines.tracking import deliver_pipeline, tracked_stages

    with acquire_lock(paths.lock) as fence:
        names = [
            n for some in tracked_stages(load_pipeline(paths.spec), paths).values() for n in some
        ]
        if not names:
            raise UserError(f"{paths.name}: none of its stages is tracked")
        damaged = [_sync_sweep(trusted_sweep(str(paths.sweep(n).root), None, trust)) for n in names]
        if undelivered := deliver_pipeline(paths, fence):
            raise UserError(f"{undelivered}; try again: tune sync {pipeline_argument(paths)}")
    return any(damaged)


def fetch(
    sweep: Sweep,
    trials: Annotated[
        list[str] | None, typer.Argument(metavar="TRIAL…", help="Trials; default: all.")
    ] = None,
    trust: Trust = False,
    storage: StorageDir = None,
) -> None:
    """Download the newest checkpoints from a sweep's mirror.

    The mirror is that of checkpoint.mirror.

    Example: tune fetch llm t0012
    """
    from results.records.trial import read_trial, read_trials
    from results.sweep_folder.copies.restore import fetch_checkpoints
    from results.sweep_folder.folder import find_trial
    from results.sweep_folder.lock import acquire_lock

    paths = trusted_sweep(sweep, storage, trust)
    named = [read_trial(find_trial(paths, trial)) for trial in trials or ()]
    with acquire_lock(paths.lock):
        fetched = fetch_checkpoints(paths, named or read_trials(paths))
    for trial_id, step in fetched.items():
        echo(f"{trial_id}  {'nothing newer' if step is None else f'step {step}'}")
