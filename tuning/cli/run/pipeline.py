"""`tune run` and `tune resume` of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.formatting import echo

if TYPE_CHECKING:
    from results.records.pipeline import PipelinePaths
    from tuning.pipelines.base import Session

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
    drive: Callable[[Session], Any],
    stages: str | None,
    begin: str | None,
    until: str | None,
) -> None:
    """Run a pipeline, and say where it stands at the end.

    The exit code is 130 after an interrupt, 1 if a stage has no result.
    """
    from tuning.pipelines.base import StageStopped
    from tuning.pipelines.run import Chosen

    names = [name.strip() for name in (stages or "").split(",") if name.strip()]
    chosen = Chosen([] if names == ["all"] else names, begin, until)
    try:
        paths = start(chosen=chosen, drive=drive, say=echo)
    except StageStopped as e:
        echo(f"{e}; the pipeline goes on with tune resume", err=True)
        raise typer.Exit(e.exit_code) from e
    except KeyboardInterrupt:
        echo("interrupted; the pipeline goes on with tune resume", err=True)
        raise typer.Exit(130) from None
    echo(f"pipeline {paths.name} in {paths.root}; look at it: tune show {paths.name}")
