"""What commands do about a sweep whose records are missing, damaged, changed or foreign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.formatting import echo

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.integrity import Integrity

AcceptDamage = Annotated[
    bool,
    typer.Option(
        "--accept-damage", help="Go on although records of the sweep are damaged or incomplete."
    ),
]


def intact(paths: SweepPaths, accept_damage: bool) -> SweepPaths:
    """The sweep without the trials that cannot be read.

    Raises:
        DamagedRecordsError: its records are not whole, and that is not accepted.
    """
    from results.records.integrity import check_records

    found = check_records(paths)
    if not accept_damage:
        found.require()
    print_damage(found)
    return found.readable


def print_damage(*found: Integrity) -> bool:
    """Print what checks found to stderr; returns whether anything is damaged."""
    for one in found:
        for line in one.words:
            echo(line, err=True)
    return any(one.problems for one in found)
