"""`tune report`: what came out of a sweep, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.options import StorageDir, Sweep

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

    from results.report.data import read
    from results.report.page import write_report
    from search_spaces.errors import UserError
    from tuning.execution.folder import find
    from tuning.search.importance import importances

    paths = find(sweep, storage)
    target = (html or paths.report).absolute()
    data = read(paths)
    try:
        write_report(replace(data, importances=importances(data)), target)
    except OSError as e:
        raise UserError(f"--html {html}: cannot write there ({e.strerror})") from e
    typer.echo(f"report {target}")
