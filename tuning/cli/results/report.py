"""`tune report`: the results of a sweep, as one HTML page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo
from tuning.cli.options import StorageDir, Sweep

Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Where to write the page."),
]


def report(
    sweep: Sweep,
    html: Html = None,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Write a report of a sweep: one HTML page that needs no network.

    It shows the history, curves, importance of the parameters, cost, failures, and why the winner
    won. The default place is the folder of the sweep.

    Example: tune report digits --html digits.html
    """
    from results.report.page import write_report
    from results.report.sweep_data import read_sweep_data
    from tuning.controller.sweep_dir.folder import find_sweep
    from tuning.search.importance import importances

    paths = intact(find_sweep(sweep, storage, writes=html is None), accept_damage)
    data = read_sweep_data(paths)
    others = [replace(one, importances=importances(one)) for one in data.others]
    data = replace(data, importances=importances(data), others=others)
    write_page(html or paths.report, lambda target: write_report(data, target))


def write_page(target: Path, write: Callable[[Path], None]) -> None:
    """Write a page and print its path.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        write(target.absolute())
    except OSError as e:
        raise UserError(f"{target}: cannot be written ({e.strerror})") from e
    echo(f"page {target.absolute()}")
