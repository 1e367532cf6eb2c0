"""`tune ui`: the runs of sweeps in MLflow's pages, or the live page."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.damage import print_damage
from tuning.cli.options import StorageDir, Trust, sweep_names, trusted_sweep


def ui(
    sweeps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SWEEP…",
            help="Sweeps to compare, or to show live; default: the list of all.",
            autocompletion=sweep_names,
        ),
    ] = None,
    trust: Trust = False,
    storage: StorageDir = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Serve a page that follows sweeps as they run."),
    ] = False,
    host: Annotated[str, typer.Option(help="Address that the live page listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open the runs in MLflow, or with --live a page of their own.

    MLflow's pages are served on this machine. It prints the addresses of their comparison and their
    curves, too.

    With --live: one page for each sweep, which shows curves, rungs, workers, cost and logs as they
    come, also of a mirrored sweep (s3://bucket/prefix/llm); it stops, pauses, adds and extends.

    Example: tune ui llm
    Example: tune ui --live llm
    """
    if live:
        from tuning.cli.look.live_server import serve_live

        return serve_live(sweeps or [], storage, host, port, browser)
    from results.records.integrity import check_records
    from tuning.cli.look.mlflow_server import serve

    paths = [trusted_sweep(sweep, storage, trust) for sweep in sweeps or []]
    print_damage(*map(check_records, paths))
    serve(paths, storage, port, browser)
