"""`tune attach`: the view of `tune run` on a sweep that another process drives."""

from __future__ import annotations

from search_spaces.errors import UserError
from tuning.cli.formatting import echo, make_console
from tuning.cli.options import StorageDir, Sweep


def attach(sweep: Sweep, storage: StorageDir = None) -> None:
    """Watch a running sweep as tune run shows it; Ctrl-C ends the view, not the sweep.

    Example: tune attach llm
    """
    from results.sweep_folder.folder import find_sweep, sweep_argument
    from results.sweep_folder.lock import current_driver
    from tuning.cli.run.live_view import make_view
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
        echo(f"{paths.name} still runs; end its session with: tune pause {name}")
        return
    echo(f"the session has ended; look at it: tune show {name}")
