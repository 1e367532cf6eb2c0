"""Runs a session in the background, in a session of processes of its own: it survives a logout."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from results.paths import SweepPaths
from results.storage.atomic import open_private
from tuning.cli.formatting import echo

_POLL_S = 0.1


def run_detached(
    prepare: Callable[[], SweepPaths],
    address: str | None,
    insecure: bool,
    accept_damage: bool = False,
) -> None:
    """Start `tune resume` of a sweep in the background; return when it drives the sweep.

    Args:
        prepare: checks the sweep, in the foreground, and returns its folder.
        address, insecure, accept_damage: see `tuning.api.resume`.

    Raises:
        UserError: see `prepare`; or the cluster needs a token.
        typer.Exit: the session ended at once; its output was printed.
    """
    from tuning.controller.ray_tune.cluster import check_cluster_auth
    from tuning.controller.sweep_dir.folder import sweep_argument
    from tuning.controller.sweep_dir.lock import current_driver

    check_cluster_auth(address, insecure)
    paths = prepare()
    options = [*(["--address", address] if address else []), *["--insecure"] * insecure]
    process, said = _start(paths, [*options, *["--accept-damage"] * accept_damage])
    while not (driver := current_driver(paths.lock)) and process.poll() is None:
        time.sleep(_POLL_S)
    name = sweep_argument(paths)
    if driver is None:
        echo(_text_from(paths.log, said), err=process.returncode != 0, nl=False)
        raise typer.Exit(process.returncode)
    echo(f"{driver} runs sweep {paths.name}; its output goes to {paths.log}")
    echo(f"watch with: tail -f {paths.log}, or tune show {name}; end with: tune pause {name}")


def _start(paths: SweepPaths, options: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process; returns it, and the size of the log before."""
    with open(paths.log, "ab", opener=open_private) as log:
        said = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "tuning", "resume", str(paths.root), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process, said


def _text_from(file: Path, start: int) -> str:
    return file.read_bytes()[start:].decode(errors="replace")
