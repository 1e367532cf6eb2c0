"""`tune sync` sends runs to MLflow; `tune fetch` downloads checkpoints from object storage."""

from __future__ import annotations

from typing import Annotated

import typer

from search_spaces.errors import DamagedRecordsError, UserError
from tuning.cli.damage import print_damage
from tuning.cli.formatting import echo
from tuning.cli.options import StorageDir, Sweep, Trust, trusted_sweep

DELIVERY_TIMEOUT_S = 600.0


def sync(sweep: Sweep, trust: Trust = False, storage: StorageDir = None) -> None:
    """Send to MLflow the data that it did not receive while the sweep ran; nothing is sent twice.

    Example: tune sync llm
    """
    from results.records.integrity import check_records
    from results.records.spec_file import read_spec
    from tuning.controller.sweep_dir.folder import sweep_argument
    from tuning.controller.tracking.observer import deliver

    paths = trusted_sweep(sweep, storage, trust)
    spec = read_spec(paths)
    if spec.tracking.name == "none":
        raise UserError(f"{paths.name}: its sweep.yaml says tracking: {{name: none}}")
    damaged = print_damage(check_records(paths))
    if undelivered := deliver(spec, paths, DELIVERY_TIMEOUT_S):
        raise UserError(f"{undelivered}; try again: tune sync {sweep_argument(paths)}")
    echo(f"{paths.name} is delivered; look at it: tune ui {sweep_argument(paths)}")
    if damaged:
        raise typer.Exit(DamagedRecordsError.exit_code)


def fetch(
    sweep: Sweep,
    trials: Annotated[
        list[str] | None, typer.Argument(metavar="[TRIAL]...", help="Trials; default: all.")
    ] = None,
    trust: Trust = False,
    storage: StorageDir = None,
) -> None:
    """Download the newest checkpoint of each trial from the sweep's mirror (checkpoint.mirror).

    Example: tune fetch llm t0012
    """
    from results.records.trial import read_trial, read_trials
    from tuning.controller.sweep_dir.folder import find_trial
    from tuning.controller.sweep_dir.lock import acquire_lock
    from tuning.controller.sweep_dir.restore import fetch_checkpoints

    paths = trusted_sweep(sweep, storage, trust)
    named = [read_trial(find_trial(paths, trial)) for trial in trials or ()]
    with acquire_lock(paths.lock):
        fetched = fetch_checkpoints(paths, named or read_trials(paths))
    for trial_id, step in fetched.items():
        echo(f"{trial_id}  {'nothing newer' if step is None else f'step {step}'}")
