"""`tune report` and `tune compare`: what came out of a sweep, and of several side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.options import StorageDir, Sweep, sweep_names

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Where to write the page.", show_default=False),
]


def report(sweep: Sweep, html: Html = None, storage: StorageDir = None) -> None:
    """Write a report of a sweep: one HTML page that needs no network.

    History, curves, importance of the parameters, cost, failures, and the winner and why. Without
    --html it is written to the sweep's folder.

    Example: tune report digits --html digits.html
    """
    from dataclasses import replace

    from results.report.page import write_report
    from results.report.sweep_data import read
    from tuning.controller.sweep_dir.folder import find
    from tuning.search.importance import importances

    paths = find(sweep, storage)
    data = read(paths)
    others = [replace(one, importances=importances(one)) for one in data.others]
    data = replace(data, importances=importances(data), others=others)
    _written(html or paths.report, lambda target: write_report(data, target))


def compare(
    sweeps: Annotated[
        list[str],
        typer.Argument(
            metavar="SWEEP SWEEP…",
            help="Two or more sweeps, by name or folder.",
            show_default=False,
            autocompletion=sweep_names,
        ),
    ],
    html: Html = None,
    storage: StorageDir = None,
) -> None:
    """Compare sweeps of one metric: what each found, its cost, and their standing at equal cost.

    Example: tune compare digits digits-2 --html both.html
    """
    from rich.table import Table
    from rich.text import Text

    from results.analysis.comparison import compare as read
    from results.report.comparison_page import table, write_comparison
    from search_spaces.errors import UserError
    from tuning.cli.formatting import make_console
    from tuning.controller.sweep_dir.folder import find

    if len(sweeps) < 2:
        raise UserError(f"tune compare takes two sweeps or more, got {sweeps[0]} alone")
    standings = read([find(sweep, storage) for sweep in sweeps])
    header, rows = table(standings)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        shown.add_column(Text(name), overflow="fold")
    for row in rows:
        shown.add_row(*map(Text, row))
    make_console().print(shown)
    if html is not None:
        _written(html, lambda target: write_comparison(standings, target))


def _written(target: Path, write: Callable[[Path], None]) -> None:
    from search_spaces.errors import UserError

    try:
        write(target.absolute())
    except OSError as e:
        raise UserError(f"{target}: cannot be written ({e.strerror})") from e
    typer.echo(f"page {target.absolute()}")
