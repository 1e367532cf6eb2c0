"""`tune ui`: the runs of sweeps in MLflow's pages."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.damage import print_damage
from tuning.cli.options import StorageDir, Trust, sweep_names, trusted_sweep


def ui(
    sweeps: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SWEEP…]",
            help="Sweeps whose runs to compare; default: open the list of experiments.",
            autocompletion=sweep_names,
        ),
    ] = None,
    trust: Trust = False,
    storage: StorageDir = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 picks a free one.")] = 5000,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Serve MLflow's pages on this machine and open the comparison of the sweeps' runs.

    Example: tune ui llm
    """
    from results.records.integrity import check_records
    from tuning.cli.look.mlflow_server import serve

    paths = [trusted_sweep(sweep, storage, trust) for sweep in sweeps or []]
    print_damage(*map(check_records, paths))
    serve(paths, storage, port, browser)
