"""`tune sync`: deliver to MLflow what a sweep could not."""

from __future__ import annotations

import typer

from tuning.cli.options import StorageDir, Sweep

_TIMEOUT_S = 600.0


def sync(sweep: Sweep, storage: StorageDir = None) -> None:
    """Deliver to MLflow what could not be delivered while the sweep ran; nothing is sent twice.

    Example: tune sync llm
    """
    from results.records.spec_file import read_spec
    from search_spaces.errors import UserError
    from tuning.controller.sweep_dir.folder import find, handle
    from tuning.controller.tracking.observer import deliver

    paths = find(sweep, storage)
    spec = read_spec(paths)
    if spec.tracking.name == "none":
        raise UserError(f"{paths.name}: its sweep.yaml says tracking: {{name: none}}")
    if undelivered := deliver(spec, paths, _TIMEOUT_S):
        raise UserError(f"{undelivered}; try again: tune sync {handle(paths)}")
    typer.echo(f"{paths.name} is delivered; look at it: tune ui {handle(paths)}")
