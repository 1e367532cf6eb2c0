"""`tune fetch`: checkpoints out of object storage, for a sweep whose records alone are here."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.options import StorageDir, Sweep


def fetch(
    sweep: Sweep,
    trials: Annotated[
        list[str] | None, typer.Argument(metavar="[TRIAL]...", help="Trials; default: all.")
    ] = None,
    storage: StorageDir = None,
) -> None:
    """Bring checkpoints back from the sweep's mirror (checkpoint.mirror), each trial's newest.

    Example: tune fetch llm t0012
    """
    from results.records.trial import read_trial, read_trials
    from tuning.controller.sweep_dir.folder import find, find_trial
    from tuning.controller.sweep_dir.lock import acquire_lock
    from tuning.controller.sweep_dir.restore import fetch_checkpoints

    paths = find(sweep, storage)
    named = [read_trial(find_trial(paths, trial)) for trial in trials or ()]
    with acquire_lock(paths.lock):
        fetched = fetch_checkpoints(paths, named or read_trials(paths))
    for trial_id, step in fetched.items():
        typer.echo(f"{trial_id}  {'nothing newer' if step is None else f'step {step}'}")
