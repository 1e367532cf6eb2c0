"""`tune compare`: the results of several sweeps, side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import make_console
from tuning.cli.options import StorageDir, sweep_names, with_results
from tuning.cli.results.report import Html, write_page


def compare(
    sweeps: Annotated[
        list[str],
        typer.Argument(
            metavar="SWEEP SWEEP…",
            help="Two or more sweeps, by name or folder.",
            autocompletion=sweep_names,
        ),
    ],
    html: Html = None,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Compare sweeps of one metric: the winner and cost of each, and the ranking at equal cost.

    Example: tune compare digits digits-2 --html both.html
    """
    from results.analysis.comparison import compare as read
    from results.report.comparison_page import table, write_comparison
    from tuning.cli.table import Table

    if len(sweeps) < 2:
        raise UserError(f"tune compare needs two sweeps or more, got {sweeps[0]} alone")
    standings = read([intact(with_results(sweep, storage), accept_damage) for sweep in sweeps])
    header, rows = table(standings)
    make_console().print(Table.of(header, rows, flexible=header[:1], right=header[3:]))
    if html is not None:
        write_page(html, lambda target: write_comparison(standings, target))
