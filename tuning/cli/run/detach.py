"""`--detach`: starts a session in the background, and says how to watch and end it."""

from __future__ import annotations

from collections.abc import Callable

import typer

from results.paths import SweepPaths
from tuning.cli.formatting import echo


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
    from tuning.watch.background import BackgroundSession

    check_cluster_auth(address, insecure)
    paths = prepare()
    session = BackgroundSession(paths, address, insecure, accept_damage)
    if (driver := session.wait_for_driver()) is None:
        code = session.process.returncode
        echo(session.output, err=code != 0, nl=False)
        raise typer.Exit(code)
    name = sweep_argument(paths)
    echo(f"{driver} runs sweep {paths.name}; its output goes to {paths.log}")
    echo(f"watch with: tune attach {name}; end with: tune pause {name}")
