"""`tune reproduce`: run a trial again and compare the curves."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import tell
from tuning.cli.options import Address, StorageDir, Sweep, Trust, trusted_sweep


def reproduce(
    sweep: Sweep,
    trial: Annotated[str, typer.Argument(help="The trial's id.")],
    address: Address = None,
    trust: Trust = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Train a trial again, and check that its curve is the same.

    The curve is to be identical in every bit. It runs on as many workers as before, and without Ray
    unless it is a Ray Train loop. If the curves differ, the exit code is 1, and differences in
    code, data, versions and hardware follow.

    Example: tune reproduce llm t0003
    """
    from results.records.spec_file import read_spec
    from results.records.trial import read_trial
    from results.sweep_folder.folder import find_trial
    from tuning.evaluation.reproduce import reproduce as run_again

    paths = intact(trusted_sweep(sweep, storage, trust), accept_damage)
    record = read_trial(find_trial(paths, trial))
    result = run_again(paths, read_spec(paths), record, address)
    if result.first is None:
        tell(f"{trial}: bit-identical in all of {result.reports} reports")
        for line in result.differences:
            tell(f"though different in {line}")
        return
    tell(f"{trial}: not the same; {result.first}")
    for line in result.differences:
        tell(f"different {line}")
    if not result.differences:
        tell(
            "nothing that is recorded differs: the training is not deterministic, or the "
            "trial was resumed on other hardware in between"
        )
    tell(f"log {result.log}")
    raise typer.Exit(1)
