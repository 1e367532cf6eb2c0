"""`tune logs`, what the trials of a sweep print; and `tune attach`, the view of `tune run`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.formatting import echo, make_console, tell
from tuning.cli.json_output import print_json_line
from tuning.cli.options import Json, StorageDir, Sweep, TrialArgument

if TYPE_CHECKING:
    from tuning.watch.logs import LogTail


def logs(
    sweep: Sweep,
    trial: TrialArgument = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what comes, while the sweep runs.")
    ] = False,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Only this rank; default: all ranks.")
    ] = None,
    json_: Json = False,
    storage: StorageDir = None,
) -> None:
    """Print what trials print, each line with trial and rank.

    Of each trial its newest attempt.

    Example: tune logs llm t0003 --follow
    """
    from results.sweep_folder.folder import find_sweep, find_trial
    from results.sweep_folder.lock import current_driver
    from tuning.watch.follow import POLL_S
    from tuning.watch.logs import LogTail

    paths = find_sweep(sweep, storage)
    if trial is not None:
        find_trial(paths, trial)
    tail, printed = LogTail(paths, trial, rank), 0
    try:
        while follow and current_driver(paths.lock):
            printed += _print(tail, json_)
            time.sleep(POLL_S)
        printed += _print(tail, json_, rest=True)
    except KeyboardInterrupt:
        return
    if not printed:
        echo(f"{trial or paths.name} has printed nothing", err=True)


def _print(tail: LogTail, json_: bool, *, rest: bool = False) -> int:
    """Print the new lines; returns how many."""
    printed = 0
    for trial, rank, line in tail.lines(rest=rest):
        if json_:
            print_json_line({"trial": trial, "rank": rank, "line": line})
        else:
            echo(f"{trial} rank {rank} | {line}")
        printed += 1
    return printed


def attach(sweep: Sweep, storage: StorageDir = None) -> None:
    """Watch a running sweep as tune run shows it.

    Ctrl-C ends the view, not the sweep.

    Example: tune attach llm
    """
    from results.sweep_folder.folder import find_sweep, sweep_argument
    from results.sweep_folder.lock import current_driver
    from tuning.cli.live_view import make_view
    from tuning.watch.follow import Follower

    paths = find_sweep(sweep, storage)
    name = sweep_argument(paths)
    driver = current_driver(paths.lock)
    if driver is None:
        raise UserError(
            f"{paths.name}: no driver runs it; look at it: tune show {name}; "
            f"continue it: tune resume {name}"
        )
    view = make_view(make_console())
    follower = Follower(paths, view)
    try:
        follower.begin()
        view.message(f"{driver} runs sweep {paths.name}")
        follower.follow(lambda: current_driver(paths.lock) is not None)
    except KeyboardInterrupt:
        view.session_ended(None)
        tell(f"{paths.name} still runs; end its session with: tune pause {name}")
        return
    tell(f"the session has ended; look at it: tune show {name}")
