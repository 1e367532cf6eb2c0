"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(help="The sweep file (YAML).")]


def sweep_names() -> list[str]:
    """Names for the shell's completion: the sweeps in the default storage."""
    from tuning.controller.sweep_dir.folder import resolve_storage

    return [paths.name for paths in resolve_storage(None).sweeps()]


Sweep = Annotated[
    str,
    typer.Argument(
        help="The sweep's name in the storage, or its folder.",
        autocompletion=sweep_names,
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the file, e.g. --set budget.trials=4. May be repeated.",
    ),
]
StorageDir = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="DIR",
        envvar="TUNE_STORAGE",
        help="Folder that holds the sweeps.",
        show_default="./sweeps",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="RAY",
        help="Ray cluster to join (host:port or auto); default: start one on this machine.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Join a cluster on another machine without a token."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Trial = Annotated[
    str | None, typer.Option("--trial", help="Use the model of this trial; default: the winner.")
]
Soup = Annotated[str | None, typer.Option("--soup", help="Use this average (soup), by its name.")]
