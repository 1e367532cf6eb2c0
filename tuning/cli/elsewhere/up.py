"""`tune up` and `tune down`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from results.own_program import module_command, start
from results.storage.atomic import open_private
from tuning.cli.formatting import echo

_POLL_S = 0.1
_IDLE = "30m"
_ENDED = "a command of another folder or environment began, and it gave way; try again after that"


def up(
    file: Annotated[
        Path | None,
        typer.Argument(help="The sweep file whose workers wait too; default: none wait."),
    ] = None,
    idle: Annotated[
        str, typer.Option(metavar="T", help="Time without a command after which it ends.")
    ] = _IDLE,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Keep a Ray cluster for tune submit --to ray instead."),
    ] = False,
) -> None:
    """Keep Ray and workers ready, so that tune run begins at once.

    It runs commands of the same folder and environment. After an edit of code it starts again.
    With --jobs, a cluster of this machine takes sweeps of tune submit --to ray, until tune down.

    Example: tune up search_spaces/llm.yaml --idle 2h
    """
    from search_spaces.errors import UserError
    from search_spaces.loading.sweep_file import load_sweep
    from search_spaces.spec.base import parse_duration

    if sys.platform != "linux":
        raise UserError("tune up: needs Linux; tune run starts without it")
    if jobs:
        if file is not None or idle != _IDLE:
            raise UserError("--jobs: takes neither a file nor --idle; leave them out")
        from tuning.submit.ray_head import running_head, start_head

        head = running_head() or start_head()
        jobs_go = "tune submit FILE --to ray"
        return echo(f"{head.address} takes jobs: {jobs_go}; end it with: tune down")
    try:
        seconds = parse_duration(idle)
    except ValueError as e:
        raise UserError(f"--idle: {e}") from e
    if (found := _ask("status")) is not None:
        return echo(f"process {found['pid']} is up; end it with: tune down")
    if file is not None:
        load_sweep(file)
    _start_keeper(file, idle, seconds)


def _start_keeper(file: Path | None, idle: str, seconds: float) -> None:
    from tuning.cluster.identity import socket_path, terminal_variables

    log = socket_path(create=True).with_name("log")
    with open(log, "wb", opener=open_private) as output:
        server = module_command("tuning.cluster.driver_server", str(file or ""), str(seconds))
        env = {k: v for k, v in os.environ.items() if k not in terminal_variables(os.environ)}
        process = start(server, output, env=env)
    while (found := _ask("status")) is None and process.poll() is None:
        time.sleep(_POLL_S)
    if found is None or not found["ready"]:
        _ask("down")
        said = log.read_text(errors="replace").strip()
        echo(said or f"tune up: {_ENDED}", err=True)
        raise typer.Exit(1)
    echo(f"process {process.pid} is up, and ends after {idle} without a command or by: tune down")


def _down_for_jobs() -> bool:
    """End the cluster for jobs; False if it does not run."""
    from search_spaces.errors import UserError
    from tuning.submit.ray_head import end_head, running_head
    from tuning.submit.ray_jobs import RayJobs

    if (head := running_head()) is None:
        return False
    if left := RayJobs(head.address).running:
        raise UserError(f"{head.address} runs {', '.join(left)}; first: tune cancel SWEEP")
    end_head(head)
    echo(f"{head.address} ended")
    return True


def down() -> None:
    """End what tune up keeps ready, and free its memory.

    A command that runs goes on.

    Example: tune down
    """
    import psutil

    ended = _down_for_jobs()
    if (found := _ask("down")) is None:
        return None if ended else echo("tune up does not run")
    if found["busy"]:
        return echo("tune up ends with the command that it runs; to end that one: tune pause")
    with suppress(psutil.NoSuchProcess):
        psutil.Process(found["pid"]).wait()
    echo("ended")


def _ask(question: str) -> Any:
    """An answer of `tune up`; None if it does not run."""
    from tuning.cluster.driver_client import ask, connect

    if (connection := connect()) is None:
        return None
    with connection:
        return ask(connection, {"command": question})
