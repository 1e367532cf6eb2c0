"""`tune add`, `tune stop` and `tune pause`: change a sweep, also while it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from tuning.cli.formatting import echo
from tuning.cli.options import StorageDir, Sweep, trial_ids


def add(
    sweep: Sweep,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="Parameters of the space; the searcher proposes the others.",
        ),
    ],
    storage: StorageDir = None,
) -> None:
    """Queue one configuration, also in a running sweep.

    It counts as a trial of the budget.

    Example: tune add llm learning_rate=3e-4 beta2=0.98
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.controller.commands import add_configuration

    echo(add_configuration(SweepFolder.open(sweep, storage, writes=True).paths, values))


def stop(
    sweep: Sweep,
    trial: Annotated[
        str | None,
        typer.Argument(
            help="A trial's id, e.g. t0003; default: stop the whole sweep.",
            autocompletion=trial_ids,
        ),
    ] = None,
    storage: StorageDir = None,
) -> None:
    """Stop a trial, or a whole sweep, and keep its checkpoints.

    Running trials end at their next report. Of a pipeline: the sweeps that run; no other stage
    begins until tune resume.

    Example: tune stop llm t0003
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.controller.commands import stop_trials
    from tuning.pipelines.control import command_pipeline
    from tuning.pipelines.folder import find_pipeline

    if trial is None and (pipeline := find_pipeline(sweep, storage)) is not None:
        return echo(command_pipeline(pipeline, "stop"))
    echo(stop_trials(SweepFolder.open(sweep, storage, writes=True).paths, trial))


def pause(sweep: Sweep, storage: StorageDir = None) -> None:
    """End the session of a running sweep; tune resume continues it.

    Example: tune pause llm
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.controller.commands import pause_session
    from tuning.pipelines.control import command_pipeline
    from tuning.pipelines.folder import find_pipeline

    if (pipeline := find_pipeline(sweep, storage)) is not None:
        return echo(command_pipeline(pipeline, "pause"))
    echo(pause_session(SweepFolder.open(sweep, storage, writes=True).paths))
