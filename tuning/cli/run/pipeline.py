"""`tune run` and `tune resume` of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from results.own_program import module_command
from tuning.cli.formatting import echo

if TYPE_CHECKING:
    from results.records.pipeline import PipelinePaths
    from tuning.pipelines.base import Session
    from tuning.pipelines.selection import StageSelection

Stages = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Of a pipeline: run these stages only; all: every one."),
]
Begin = Annotated[
    str | None, typer.Option(metavar="STAGE", help="Of a pipeline: begin with this stage.")
]
Until = Annotated[
    str | None, typer.Option(metavar="STAGE", help="Of a pipeline: end with this stage.")
]


def run_stages(
    start: Callable[..., PipelinePaths],
    run_session: Callable[[Session], Any],
    selection: StageSelection,
) -> None:
    """Run a pipeline, and say where it stands at the end.

    The exit code is 130 after an interrupt, 1 if a stage has no result.
    """
    from results.sweep_folder.folder import pipeline_argument
    from tuning.cli.run.signals import interrupted_by_signals
    from tuning.pipelines.base import StageStopped

    command = module_command("tuning.cli.run.stage_process")
    options = {"selection": selection, "run_session": run_session, "stage_command": command}
    try:
        with interrupted_by_signals():
            paths = start(**options, notify=echo)
    except StageStopped as e:
        echo(f"{e}; the pipeline goes on with tune resume", err=True)
        raise typer.Exit(e.exit_code) from e
    except KeyboardInterrupt:
        echo("interrupted; the pipeline goes on with tune resume", err=True)
        raise typer.Exit(130) from None
    look = f"tune show {pipeline_argument(paths)}"
    echo(f"pipeline {paths.name} in {paths.root}; look at it: {look}")
