"""Runs the stages of a pipeline; a stage whose key is recorded complete is not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from results.models.stages import read_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.storage.atomic import write_atomic
from results.storage.probe import check_storage
from results.sweep_folder.folder import resolve_storage
from results.sweep_folder.lock import acquire_lock
from results.sweep_folder.trust import Trust
from search_spaces.checksum import add_yaml_checksum
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import LoadedPipeline, freeze, load_pipeline
from tuning.cluster.connection import check_cluster_auth
from tuning.cluster.warm_cluster import shared_cluster
from tuning.pipelines.base import Notify, RunSession, StageContext
from tuning.pipelines.check import check_pipeline, pipeline_notes
from tuning.pipelines.control import remove_commands
from tuning.pipelines.folder import require_own, sign_pipeline
from tuning.pipelines.order import StageOrder
from tuning.pipelines.selection import StageSelection
from tuning.pipelines.tracking import track_pipeline


class PipelineOptions(TypedDict, total=False):
    """What is given beside the file of a pipeline.

    Attributes:
        overrides: `stage.key=value` texts.
        name: of the pipeline's folder; default: the file's.
        storage: folder that holds it; default: `$TUNE_STORAGE` or ./sweeps.
        address, insecure: see `tuning.api.run`.
        selection: the stages to run; default: all.
        run_session, notify: see `StageContext`.
        stage_command: runs a stage in a process of its own, see `StageProcess`; without it, stages
            run one after the other.
    """

    overrides: Sequence[str]
    name: str | None
    storage: str | None
    address: str | None
    insecure: bool
    selection: StageSelection
    run_session: RunSession
    notify: Notify
    stage_command: Sequence[str]


def create_pipeline(file: str | Path, **options: Unpack[PipelineOptions]) -> PipelinePaths:
    """Check a pipeline, and write its folder, or that of its earlier runs; no stage runs.

    Args:
        file: of the pipeline.
        options: `overrides`, `name` and `storage`.

    Raises:
        UserError: a mistake in the file, or another process runs the pipeline.
    """
    pipeline, paths = _checked(file, options)
    with acquire_lock(paths.lock):
        _freeze(pipeline, paths)
    return paths


def run_pipeline(file: str | Path, **options: Unpack[PipelineOptions]) -> PipelinePaths:
    """Run a pipeline's stages that have not been run with these keys; the others are kept.

    Args:
        file: of the pipeline.
        options: see `PipelineOptions`.

    Raises:
        UserError: a mistake in the file, or a stage cannot be run.
        StageStopped: a stage was interrupted, or has no result; `resume_pipeline` goes on.
    """
    return _run(file, options, is_resumed=False)


def _run(file: str | Path, options: PipelineOptions, is_resumed: bool) -> PipelinePaths:
    check_cluster_auth(options.get("address"), options.get("insecure", False))
    pipeline, paths = _checked(file, options)
    context = StageContext(
        pipeline,
        paths,
        options.get("address"),
        options.get("run_session", lambda session: session()),
        options.get("notify", lambda line: None),
        is_resumed,
    )
    if not is_resumed:
        for note in pipeline_notes(pipeline):
            context.notify(note)
    with acquire_lock(paths.lock) as fence:
        remove_commands(paths)  # those that come from here on are for this session
        context = replace(context, fence=fence)
        _freeze(pipeline, paths)
        names = options.get("selection", StageSelection()).select(pipeline.order)
        paths.stages.root.mkdir(exist_ok=True)
        before = read_stages(paths).stages
        try:
            with shared_cluster():
                StageOrder(context, options.get("stage_command", ())).run(names)
        finally:
            if context.records != before:
                track_pipeline(paths, fence, context.notify)
    return paths


def resume_pipeline(
    paths: PipelinePaths, *, trust: Trust = False, **options: Unpack[PipelineOptions]
) -> PipelinePaths:
    """Go on with a pipeline, as it was started last: in the stage that was interrupted.

    Stages that have begun stay, also if their code or data have changed since, by an upgrade of
    this program for instance; unless `overrides` change stages.

    Args:
        paths: its folder.
        trust: resume a pipeline that another user made; or a function that is asked.
        options: see `PipelineOptions`; `overrides` stay.

    Raises:
        UserError, StageStopped: see `run_pipeline`.
    """
    require_own(paths, trust)
    options["name"], options["storage"] = paths.name, str(paths.root.parent)
    overrides = options.get("overrides", ())
    return _run(paths.spec, options, all(one.startswith("monitoring.") for one in overrides))


def _checked(file: str | Path, options: PipelineOptions) -> tuple[LoadedPipeline, PipelinePaths]:
    """A pipeline without mistakes, and its folder, which is there."""
    pipeline, name = load_pipeline(Path(file), options.get("overrides", ())), options.get("name")
    paths = PipelinePaths(resolve_storage(options.get("storage")).root / (name or pipeline.name))
    check_pipeline(pipeline)
    if Path(paths.name).name != (name or paths.name):
        raise UserError(f"--name: must be a plain name, got '{name}'")
    if SweepPaths(paths.root).is_sweep:
        raise UserError(f"{paths.root} is a sweep; choose another name (--name)")
    if paths.root.is_symlink():
        real = paths.root.resolve()
        raise UserError(
            f"{paths.root}: an earlier name of {real}, whose stages need it; choose another name "
            f"(--name), or go on with that pipeline: --name {real.name}"
        )
    check_storage(paths.root.parent)
    paths.root.mkdir(parents=True, exist_ok=True)
    return pipeline, paths


def _freeze(pipeline: LoadedPipeline, paths: PipelinePaths) -> None:
    text = add_yaml_checksum(freeze(pipeline)).encode()
    sign_pipeline(paths, text)
    write_atomic(paths.spec, text)
