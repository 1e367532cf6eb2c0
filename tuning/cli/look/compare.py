"""`tune compare`: the results of several sweeps, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import make_console
from tuning.cli.look.report import Html, print_pages, write_page

if TYPE_CHECKING:
    from results.analysis.comparison import SweepSummary
from tuning.cli.json_output import print_json
from tuning.cli.options import Json, StorageDir, sweep_names, with_results


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
    json_: Json = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Compare sweeps of one metric, also at equal cost.

    Of each its winner, its cost, and its best value at the costs of the others.

    Example: tune compare digits digits-2 --html both.html
    """
    from results.analysis.comparison import compare as read
    from results.report.comparison_page import table, write_comparison
    from tuning.cli.table import Table

    if len(sweeps) < 2:
        raise UserError(f"tune compare needs two sweeps or more, got {sweeps[0]} alone")
    standings = read([intact(with_results(sweep, storage), accept_damage) for sweep in sweeps])
    pages = []
    if html is not None:
        pages = [write_page(html, lambda target: write_comparison(standings, target))]
    if json_:
        return print_json({**_facts(standings), "pages": pages})
    header, rows = table(standings)
    optional = [title for title in header[:-1] if title.startswith("best ")]
    shown = Table.of(header, rows, flexible=header[:1], right=header[3:], optional=optional)
    make_console().print(shown)
    print_pages(*pages)


def _facts(standings: Sequence[SweepSummary]) -> dict[str, Any]:
    """The same as data; costs in worker-seconds."""
    from results.analysis.comparison import equal_costs

    costs, objectives = equal_costs(standings), standings[0].spec.objectives
    sweeps = [
        {
            "name": one.name,
            "trials": one.trials,
            "winner": one.winner.record.id if one.winner else None,
            "best": {
                o.metric: one.winner.values.get(o.metric) if one.winner else None
                for o in objectives
            }
            | {objectives[0].metric: one.winner.value if one.winner else None},
            "front": one.front,
            "worker_seconds": one.cost,
            "best_at": [{"worker_seconds": c, "value": one.best_at(c)} for c in costs],
        }
        for one in standings
    ]
    return {"objectives": {o.metric: o.mode for o in objectives}, "sweeps": sweeps}
