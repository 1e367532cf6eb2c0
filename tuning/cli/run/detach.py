"""`--detach`: starts a session in the background, and says how to watch and end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from tuning.cli.formatting import echo

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.pipeline import PipelinePaths


def run_detached(
    prepare: Callable[[], SweepPaths | PipelinePaths],
    address: str | None,
    insecure: bool,
    accept_damage: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Start `tune resume` of a sweep or pipeline in the background; return when it drives that.

    Args:
        prepare: checks it, in the foreground, and returns its folder.
        address, insecure, accept_damage: see `tuning.api.resume`.
        options: more of `tune resume`.

    Raises:
        UserError: see `prepare`; or the cluster needs a token.
        typer.Exit: the session ended at once; its output was printed.
    """
    from results.records.pipeline import PipelinePaths
    from results.sweep_folder.folder import pipeline_argument, sweep_argument
    from tuning.cluster.connection import check_cluster_auth, require_answer
    from tuning.watch.background import BackgroundSession

    check_cluster_auth(address, insecure)
    require_answer(address)
    paths = prepare()
    session = BackgroundSession(paths, address, insecure, accept_damage, options)
    if (driver := session.wait_for_driver()) is None:
        code = session.process.returncode
        echo(session.output, err=code != 0, nl=False)
        raise typer.Exit(code)
    if isinstance(paths, PipelinePaths):
        name, watch = pipeline_argument(paths), "show --watch"
        echo(f"{driver} runs pipeline {paths.name}; its output goes to {paths.log}")
    else:
        name, watch = sweep_argument(paths), "attach"
        echo(f"{driver} runs sweep {paths.name}; its output goes to {paths.log}")
    echo(f"watch with: tune {watch} {name}; end with: tune pause {name}")
