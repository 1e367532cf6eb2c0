"""`tune run` and `tune resume` of a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from results.own_program import module_command
from tuning.cli.formatting import echo

if TYPE_CHECKING:
    from results.records.pipeline import PipelinePaths
    from tuning.pipelines.base import Session
    from tuning.pipelines.chosen import Chosen

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


_STAGE_PROCESS = module_command("tuning.cli.run.stage_process")


@dataclass(frozen=True)
class StageSelection:
    """The stages that the options of a command name."""

    stages: str | None
    begin: str | None
    until: str | None

    @property
    def chosen(self) -> Chosen:
        """The same, for the pipeline."""
        from tuning.pipelines.chosen import Chosen

        names = [name.strip() for name in (self.stages or "").split(",") if name.strip()]
        return Chosen([] if names == ["all"] else names, self.begin, self.until)

    @property
    def options(self) -> list[str]:
        """The same, for another process."""
        given = {"--stages": self.stages, "--begin": self.begin, "--until": self.until}
        return [f"{option}={value}" for option, value in given.items() if value]


def run_stages(
    start: Callable[..., PipelinePaths], drive: Callable[[Session], Any], asked: StageSelection
) -> None:
    """Run a pipeline, and say where it stands at the end.

    The exit code is 130 after an interrupt, 1 if a stage has no result.
    """
    from tuning.cli.run.signals import interrupted_by_signals
    from tuning.pipelines.base import StageStopped

    try:
        with interrupted_by_signals():
            paths = start(chosen=asked.chosen, drive=drive, say=echo, apart=_STAGE_PROCESS)
    except StageStopped as e:
        echo(f"{e}; the pipeline goes on with tune resume", err=True)
        raise typer.Exit(e.exit_code) from e
    except KeyboardInterrupt:
        echo("interrupted; the pipeline goes on with tune resume", err=True)
        raise typer.Exit(130) from None
    echo(f"pipeline {paths.name} in {paths.root}; look at it: tune show {paths.name}")
