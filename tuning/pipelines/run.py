"""Runs the stages of a pipeline; a stage whose key is recorded complete is not run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths, read_stages
from results.storage.atomic import write_atomic
from results.storage.probe import check_storage
from search_spaces.checksum import add_yaml_checksum
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import LoadedPipeline, freeze, load_pipeline
from tuning.cluster.connection import check_cluster_auth
from tuning.cluster.warm_cluster import shared_cluster
from tuning.controller.sweep_dir.folder import resolve_storage
from tuning.controller.sweep_dir.lock import acquire_lock
from tuning.controller.sweep_dir.trust import Trust
from tuning.pipelines.base import Drive, Say
from tuning.pipelines.check import check_pipeline
from tuning.pipelines.chosen import ALL, Chosen
from tuning.pipelines.folder import require_own, sign_pipeline
from tuning.pipelines.running.order import StageOrder
from tuning.pipelines.running.table import StageTable
from tuning.pipelines.tracking import track_pipeline


class Given(TypedDict, total=False):
    """What is given beside the file of a pipeline.

    Attributes:
        overrides: `stage.key=value` texts.
        name: of the pipeline's folder; default: the file's.
        storage: folder that holds it; default: `$TUNE_STORAGE` or ./sweeps.
    """

    overrides: Sequence[str]
    name: str | None
    storage: str | None


class How(TypedDict, total=False):
    """How the stages of a pipeline run.

    Attributes:
        address, insecure: see `tuning.api.run`.
        chosen: the stages to run; default: all.
        drive, say: see `Surroundings`.
        apart: the command that runs a stage in a process of its own, see `StageProcess`; without
            it, stages run one after the other.
    """

    address: str | None
    insecure: bool
    chosen: Chosen
    drive: Drive
    say: Say
    apart: Sequence[str]


class GivenAndHow(Given, How):
    """Both."""


def create_pipeline(file: str | Path, **given: Unpack[Given]) -> PipelinePaths:
    """Check a pipeline, and write its folder, or that of its earlier runs; no stage runs.

    Args:
        file: of the pipeline.
        given: see `Given`.

    Raises:
        UserError: a mistake in the file, or another process runs the pipeline.
    """
    pipeline, paths = _checked(file, given)
    with acquire_lock(paths.lock):
        _freeze(pipeline, paths)
    return paths


def run_pipeline(file: str | Path, **how: Unpack[GivenAndHow]) -> PipelinePaths:
    """Run a pipeline's stages that have not been run with these keys; the others are kept.

    Args:
        file: of the pipeline.
        how: see `Given` and `How`.

    Raises:
        UserError: a mistake in the file, or a stage cannot be run.
        StageStopped: a stage was interrupted, or has no result; `resume_pipeline` goes on.
    """
    check_cluster_auth(how.get("address"), how.get("insecure", False))
    pipeline, paths = _checked(file, how)
    with acquire_lock(paths.lock) as fence:
        _freeze(pipeline, paths)
        names = how.get("chosen", ALL).among(pipeline.order)
        paths.stages.root.mkdir(exist_ok=True)
        table = StageTable(pipeline, paths)
        drive, say = how.get("drive", lambda session: session()), how.get("say", lambda line: None)
        address, apart = how.get("address"), how.get("apart", ())
        before = read_stages(paths).stages
        try:
            with shared_cluster():
                StageOrder(pipeline, paths, table, address, drive, say, apart).run(names)
        finally:
            if read_stages(paths).stages != before:
                track_pipeline(paths, fence, say)
    return paths


def resume_pipeline(
    paths: PipelinePaths,
    *,
    trust: Trust = False,
    overrides: Sequence[str] = (),
    **how: Unpack[How],
) -> PipelinePaths:
    """Go on with a pipeline, as it was started last: in the stage that was interrupted.

    Args:
        paths: its folder.
        trust: resume a pipeline that another user made; or a function that is asked.
        overrides: `stage.key=value` texts, which stay.
        how: see `How`.

    Raises:
        UserError, StageStopped: see `run_pipeline`.
    """
    require_own(paths, trust)
    given: Given = {"name": paths.name, "storage": str(paths.root.parent), "overrides": overrides}
    return run_pipeline(paths.spec, **given, **how)


def _checked(file: str | Path, given: Given) -> tuple[LoadedPipeline, PipelinePaths]:
    """A pipeline without mistakes, and its folder, which is there."""
    pipeline, name = load_pipeline(Path(file), given.get("overrides", ())), given.get("name")
    paths = PipelinePaths(resolve_storage(given.get("storage")).root / (name or pipeline.name))
    check_pipeline(pipeline)
    if Path(paths.name).name != (name or paths.name):
        raise UserError(f"--name: must be a plain name, got '{name}'")
    if SweepPaths(paths.root).is_sweep:
        raise UserError(f"{paths.root} is a sweep; choose another name (--name)")
    check_storage(paths.root.parent)
    paths.root.mkdir(parents=True, exist_ok=True)
    return pipeline, paths


def _freeze(pipeline: LoadedPipeline, paths: PipelinePaths) -> None:
    text = add_yaml_checksum(freeze(pipeline)).encode()
    sign_pipeline(paths, text)
    write_atomic(paths.spec, text)
