"""`tune reproduce`: whether a trial comes out the same a second time."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.options import Address, StorageDir, Sweep


def reproduce(
    sweep: Sweep,
    trial: Annotated[str, typer.Argument(help="The trial's id.", show_default=False)],
    address: Address = None,
    storage: StorageDir = None,
) -> None:
    """Run a trial again from its record, and say whether its curve is the same, bit by bit.

    On as many workers as it had; without Ray, but for a Ray Train loop, which needs it. Ends with 1
    when the curves differ, and then names what else does: code, data, versions, hardware.

    Example: tune reproduce llm t0003
    """
    from results.records.spec_file import read_spec
    from results.records.trial import read_trial
    from tuning.controller.sweep_dir.folder import find_sweep, find_trial
    from tuning.evaluation.reproduce import reproduce as run_again

    paths = find_sweep(sweep, storage)
    record = read_trial(find_trial(paths, trial))
    verdict = run_again(paths, read_spec(paths), record, address)
    if verdict.first is None:
        typer.echo(f"{trial}: bit-identical in all of {verdict.reports} reports")
        for line in verdict.differences:
            typer.echo(f"though different in {line}")
        return
    typer.echo(f"{trial}: not the same; {verdict.first}")
    for line in verdict.differences:
        typer.echo(f"different {line}")
    if not verdict.differences:
        typer.echo("nothing that is recorded differs: the training is not deterministic, or the")
        typer.echo("trial was resumed on other hardware in between")
    typer.echo(f"log {verdict.log}")
    raise typer.Exit(1)
