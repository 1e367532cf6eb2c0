"""`tune run` and `tune resume`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage
from tuning.cli.formatting import echo, make_console
from tuning.cli.options import (
    Address,
    Detach,
    File,
    Insecure,
    MetricsPort,
    Name,
    Set,
    StorageDir,
    Sweep,
    Trust,
    ask_for_trust,
    with_metrics_port,
)
from tuning.cli.run.pipeline import Begin, Stages, Until, run_stages

if TYPE_CHECKING:
    from results.records.pipeline import PipelinePaths
    from tuning.controller.sweep import SweepController
    from tuning.pipelines.selection import StageSelection


def run(
    file: File,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    name: Name = None,
    storage: StorageDir = None,
    address: Address = None,
    insecure: Insecure = False,
    detach: Detach = False,
    metrics_port: MetricsPort = None,
    or_resume: Annotated[
        bool,
        typer.Option("--or-resume", help="Continue the sweep if it has begun: for job queues."),
    ] = False,
    stages: Stages = None,
    begin: Begin = None,
    until: Until = None,
) -> None:
    """Run the sweep or pipeline of a file to its winner.

    A stage of a pipeline that is complete, and has not changed since, is not run again. With
    --or-resume the same command begins a sweep, continues it, and does nothing once it is complete.

    Example: tune run search_spaces/llm.yaml --set budget.trials=6
    """
    from search_spaces.pipeline.loading import is_pipeline_file
    from tuning import api
    from tuning.cli.run.detach import run_detached

    where: dict[str, Any] = {"address": address, "insecure": insecure}
    if is_pipeline_file(file):
        from tuning.pipelines.run import create_pipeline, run_pipeline
        from tuning.pipelines.selection import StageSelection

        set_ = with_metrics_port(set_, metrics_port)
        if or_resume:
            _wait_for_its_driver(_pipeline_folder(file, set_, name, storage))
        asked: dict[str, Any] = {"overrides": set_, "name": name, "storage": storage}
        selection = StageSelection.parse(stages, begin, until)
        start, prepare = (partial(f, file, **asked) for f in (run_pipeline, create_pipeline))
        return _drive_pipeline(start, prepare, [], selection, where, detach=detach)
    _refuse("a sweep", {"--stages": stages, "--begin": begin, "--until": until})
    if or_resume:
        name, found = _begun(file, set_, name, storage)
        if found is not None:
            _wait_for_its_driver(found)
            return resume(found, storage=storage, metrics_port=metrics_port, detach=detach, **where)
    set_ = with_metrics_port(set_, metrics_port)
    if detach:
        create = partial(api.create, file, overrides=set_, name=name, storage=storage)
        return run_detached(partial(create, address=address), **where)
    _run_session(partial(api.run, file, overrides=set_, name=name, storage=storage, **where))


def _drive_pipeline(
    start: Callable[..., PipelinePaths],
    prepare: Callable[[], PipelinePaths],
    more: Sequence[str],
    selection: StageSelection,
    where: Mapping[str, Any],
    *,
    detach: bool,
) -> None:
    """Run stages, or prepare their folder for a process in the background, which gets `more`."""
    from tuning.cli.run.detach import run_detached

    if detach:
        return run_detached(prepare, **where, options=[*selection.arguments, *more])
    return run_stages(partial(start, **where), run_and_summarize, selection)


def _pipeline_folder(
    file: Path, overrides: Sequence[str], name: str | None, storage: str | None
) -> str:
    from results.sweep_folder.folder import resolve_storage
    from search_spaces.pipeline.loading import load_pipeline

    return str(resolve_storage(storage).root / (name or load_pipeline(file, overrides).name))


def _wait_for_its_driver(found: str) -> None:
    """Wait until it is known whether another machine runs a sweep or pipeline, by its place."""
    from results.paths import SweepPaths
    from results.sweep_folder.copies.mirror import wait_for_mirrors_driver
    from results.sweep_folder.lock import wait_for_sign_of_life

    if "://" in found:
        return wait_for_mirrors_driver(found, echo)
    return wait_for_sign_of_life(SweepPaths(Path(found)).lock, echo)


def _begun(
    file: Path, overrides: Sequence[str], name: str | None, storage: str | None
) -> tuple[str, str | None]:
    """The name of the file's sweep, and where it is if it has begun."""
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.sweep_dir.create import changed_keys, find_existing

    loaded = load_sweep(file, overrides)
    found = find_existing(loaded, name, storage)
    if found is not None and "://" not in found and (changed := changed_keys(found, loaded)):
        echo(
            f"{file}: differs from the sweep that has begun in {', '.join(changed)}; it continues"
            " as it is (tune resume --set changes it)"
        )
    return name or loaded.spec.name, found


def resume(
    sweep: Sweep,
    trials: Annotated[
        str | None, typer.Option(metavar="N", help="Total number of trials, or +20 for 20 more.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="T", help="Total time, or +2h for two hours more.")
    ] = None,
    set_: Set = [],  # noqa: B006 - typer reads the default, it is never changed
    trust: Trust = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed trials again: the code is mended.")
    ] = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
    address: Address = None,
    insecure: Insecure = False,
    detach: Detach = False,
    metrics_port: MetricsPort = None,
    stages: Stages = None,
    begin: Begin = None,
    until: Until = None,
) -> None:
    """Continue a sweep from the newest checkpoints of its trials.

    A finished sweep continues with a larger budget. --set changes other keys of it permanently. A
    mirrored sweep (checkpoint.mirror) continues anywhere, by tune resume s3://bucket/prefix/llm.
    A pipeline continues in the stage that was interrupted, and runs those behind it.

    Example: tune resume llm --trials +20 --set 'space.beta2={uniform: [0.9, 0.999]}'
    """
    from tuning import api
    from tuning.cli.run.detach import run_detached
    from tuning.pipelines.folder import find_pipeline
    from tuning.pipelines.selection import StageSelection

    if (pipeline := find_pipeline(sweep, storage)) is not None:
        given: dict[str, object] = {"--trials": trials, "--time": time, "--set": set_}
        _refuse("a pipeline", {**given, "--retry-failed": retry_failed})
        selection = StageSelection.parse(stages, begin, until)
        where: dict[str, Any] = {"address": address, "insecure": insecure}
        continuation = _continuation(pipeline, trust, metrics_port)
        return _drive_pipeline(*continuation, selection, where, detach=detach)
    _refuse("a sweep", {"--stages": stages, "--begin": begin, "--until": until})
    set_ = with_metrics_port(set_, metrics_port)
    asked: dict[str, Any] = {"trials": trials, "time": time, "overrides": set_}
    asked |= {"retry_failed": retry_failed, "accept_damage": accept_damage}
    asked |= {"storage": storage, "trust": trust or ask_for_trust}
    if detach:
        return run_detached(lambda: api.amend(sweep, **asked)[0], address, insecure, accept_damage)
    _run_session(partial(api.resume, sweep, **asked, address=address, insecure=insecure))


def _continuation(
    pipeline: PipelinePaths, trust: bool, metrics_port: int | None
) -> tuple[Callable[..., PipelinePaths], Callable[[], PipelinePaths], list[str]]:
    """What `_drive_pipeline` takes to resume a pipeline."""
    from tuning.pipelines.run import resume_pipeline

    changed = with_metrics_port([], metrics_port)
    start = partial(resume_pipeline, pipeline, trust=trust or ask_for_trust, overrides=changed)
    more = [] if metrics_port is None else [f"--metrics-port={metrics_port}"]
    return start, partial(_own, pipeline, trust), [*["--trust"] * trust, *more]


def _own(pipeline: PipelinePaths, trust: bool) -> PipelinePaths:
    """A pipeline that no process runs, and that is trusted."""
    from results.sweep_folder.lock import refuse_if_driven
    from tuning.pipelines.folder import require_own

    refuse_if_driven(pipeline.lock)
    require_own(pipeline, trust)
    return pipeline


def _refuse(what: str, options: Mapping[str, object]) -> None:
    """Refuse options that have no effect."""
    for option in (name for name, value in options.items() if value):
        raise UserError(f"{option}: has no effect on {what}; leave it out")


def _run_session(start: Callable[..., SweepController]) -> None:
    """Run a session and print its summary.

    The exit code is 130 after an interrupt, 1 if no trial could run or none has a value.
    """
    outcome = run_and_summarize(start)
    if outcome.interrupted:
        raise typer.Exit(1 if outcome.gave_up else 130)
    if not outcome.table.has_result:
        raise typer.Exit(1)


def run_and_summarize(start: Callable[..., SweepController]) -> SweepController:
    """Run a session, show it, and print its summary."""
    from tuning.cli.live_view import make_view
    from tuning.cli.run.death_notice import DeathNotice
    from tuning.cli.run.signals import StopOnSignal
    from tuning.cli.summary import print_summary

    view, notice = make_view(make_console()), DeathNotice()
    outcome = start(observers=[notice, view], interrupt=StopOnSignal(notice.cancel))
    print_summary(outcome, view.console)
    return outcome
