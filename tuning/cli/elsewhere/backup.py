"""`tune backup` copies a sweep to another place; `tune restore` brings it back."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from search_spaces.errors import DamagedRecordsError, quantity
from tuning.cli.damage import print_damage
from tuning.cli.formatting import echo, size
from tuning.cli.options import StorageDir, Sweep, Trust, trusted_sweep


def backup(
    sweep: Sweep,
    target: Annotated[
        str,
        typer.Argument(
            help="A folder on another disk, or s3://bucket/prefix; the backups are in TARGET/NAME."
        ),
    ],
    keep_last: Annotated[
        int, typer.Option(min=1, help="Newest checkpoints of each trial to save.")
    ] = 5,
    keep_best: Annotated[
        int, typer.Option(min=0, help="Best checkpoints of each trial to save, by the metric.")
    ] = 1,
    backups: Annotated[int, typer.Option(min=1, help="Backups to keep; older are deleted.")] = 5,
    trust: Trust = False,
    storage: StorageDir = None,
) -> None:
    """Back up a sweep to a folder or to object storage.

    Saved are records, study, checkpoints, results, and notes on its runs in MLflow. Of a pipeline:
    its records and all its stages. It may run meanwhile. Only what changed since the last backup is
    sent.

    Example: tune backup llm s3://bucket/backups
    """
    from results.records.integrity import check_records
    from tuning.controller.backup import back_up
    from tuning.pipelines.folder import find_pipeline

    kept = {"newest": keep_last, "best": keep_best, "keep": backups}
    if (pipeline := find_pipeline(sweep, storage)) is not None:
        name, damaged = pipeline.name, False
        taken = back_up(pipeline, target, **kept)
    else:
        paths = trusted_sweep(sweep, storage, trust)
        name, damaged = paths.name, print_damage(check_records(paths))
        taken = back_up(paths, target, **kept)
    files = taken.backup.files
    total = sum(entry.size for entry in files.values())
    deleted = f"; deleted {quantity(taken.deleted, 'old backup')}" if taken.deleted else ""
    echo(
        f"{name}  backup {taken.backup.label}: {len(files)} files, {size(total)}; "
        f"sent {taken.sent.files}, {size(taken.sent.size)}{deleted}"
    )
    echo(f"restore it with: tune restore {_source(target, name)}")
    if taken.problem:
        echo(f"without the notes on its runs: {taken.problem}", err=True)
    if damaged or taken.problem:
        raise typer.Exit(DamagedRecordsError.exit_code)


def restore(
    source: Annotated[
        str, typer.Argument(help="Where the sweep's backups are: TARGET/NAME of tune backup.")
    ],
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Which backup; default: the newest.")
    ] = None,
    trust: Trust = False,
    storage: StorageDir = None,
) -> None:
    """Restore a sweep and its runs in MLflow from a backup.

    Of a pipeline: its folder; tune sync sends its runs.

    Example: tune restore s3://bucket/backups/llm
    """
    from results.records.pipeline import PipelinePaths
    from results.sweep_folder.folder import pipeline_argument, sweep_argument
    from tuning.controller.backup import restore_backup, restore_tracking

    paths, found, left_out = restore_backup(source, storage, at)
    echo(f"{paths.root}  restored from backup {found.label}: {len(found.files)} files")
    for folder in left_out:
        echo(f"{folder}: is damaged in the backup and was left out", err=True)
    problem, pipeline = None, PipelinePaths(paths.root)
    if pipeline.is_pipeline:
        name = pipeline_argument(pipeline)
        echo(f"send its runs to MLflow with: tune sync {name}")
    else:
        name = sweep_argument(paths)
        problem = restore_tracking(trusted_sweep(str(paths.root), None, trust), found)
    if problem:
        echo(f"{problem}; send its runs later: tune sync {name}", err=True)
    echo(f"continue it with: tune resume {name}")
    if left_out or problem:
        raise typer.Exit(DamagedRecordsError.exit_code)


def _source(target: str, name: str) -> str:
    """TARGET/NAME, before the options of an address; quoted for a shell."""
    plain, mark, options = target.partition("?")
    return shlex.quote(f"{plain.rstrip('/')}/{name}{mark}{options}")
