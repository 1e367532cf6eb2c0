"""Finds pipelines, and signs their file: a stranger's is not run, because stages run programs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from results.models.stages import StageRecord, read_stages, write_stages
from results.paths import SweepPaths
from results.records.pipeline import PipelinePaths
from results.sweep_folder.folder import pipeline_argument, resolve_storage, sweep_argument
from results.sweep_folder.identity import identity, is_signed, sign
from results.sweep_folder.trust import Trust
from search_spaces.errors import UserError
from search_spaces.files import read_regular
from search_spaces.pipeline.loading import LoadedPipeline, load_pipeline
from search_spaces.pipeline.stages import AverageStage

_KEY = "pipeline"


def find_pipeline(name: str, storage: str | None) -> PipelinePaths | None:
    """The pipeline of a name, also an earlier one, or of a folder, if there is one."""
    as_path = PipelinePaths(Path(name).resolve())
    if as_path.is_pipeline:
        return as_path
    root = resolve_storage(storage).root / name
    found = PipelinePaths(root.resolve() if root.is_symlink() else root)
    return found if Path(name).name == name and found.is_pipeline else None


def last_sweep(paths: PipelinePaths) -> SweepPaths:
    """The sweep that the name of a pipeline stands for: that of the train stage that runs last.

    Raises:
        UserError: there is no such stage, or it has not begun.
    """
    pipeline = load_pipeline(paths.spec)
    names = [name for name in pipeline.order if name in pipeline.sweeps]
    if not names:
        raise UserError(f"{paths.name}: has no train stage, so it has no model")
    sweep = paths.sweep(names[-1])
    if not sweep.is_sweep:
        begun = [sweep_argument(s) for s in map(paths.sweep, names) if s.is_sweep]
        instead = f"; name another stage: {', '.join(begun)}" if begun else ""
        raise UserError(f"{paths.name}: its last train stage, {names[-1]}, has not begun{instead}")
    return sweep


def last_soup(paths: PipelinePaths) -> str | None:
    """The average of the models of the last train stage; None if no stage makes one.

    Raises:
        UserError: that stage is not complete.
    """
    sweep, pipeline = last_sweep(paths), load_pipeline(paths.spec)
    records = {name: one for name, one in read_stages(paths).stages.items() if one.done}
    if missing := [one for one in averages_of(sweep.name, pipeline) if one not in records]:
        raise UserError(
            f"{paths.name}: its stage {missing[0]} is not complete; continue with tune resume "
            f"{pipeline_argument(paths)}, or use {sweep_argument(sweep)}"
        )
    return soup_of(sweep.name, pipeline, records)


def averages_of(train: str, pipeline: LoadedPipeline) -> list[str]:
    """The stages that average the models of a train stage."""
    found = (one for one in pipeline.stages.values() if isinstance(one, AverageStage))
    return [one.name for one in found if one.of == train]


def soup_of(train: str, pipeline: LoadedPipeline, records: Mapping[str, StageRecord]) -> str | None:
    """The name of the last average of a train stage; None if no stage averages it."""
    names = averages_of(train, pipeline)
    return records[names[-1]].models[0].name if names else None


def sign_pipeline(paths: PipelinePaths, spec: bytes) -> None:
    """Sign a content of `pipeline.yaml` before it is written; a new pipeline gets its identity.

    The signature for the content before stays, so a driver that is killed in between stays the
    owner.
    """
    records = read_stages(paths)
    signed = (sign(identity(_KEY, spec)), *records.signed[:1])
    own = records.identity or uuid.uuid4().hex
    write_stages(paths, replace(records, signed=signed, identity=own))


def require_own(paths: PipelinePaths, trust: Trust) -> None:
    """Pass for a pipeline that this user has started; otherwise only with consent.

    Raises:
        UserError: another user started it, or its file was edited, and it is not trusted.
    """
    if is_signed(identity(_KEY, read_regular(paths.spec)), read_stages(paths).signed):
        return
    doubt = f"{paths.root}: another user started this pipeline, or its file was edited"
    if not (trust(f"{doubt}. Run its programs and training code?") if callable(trust) else trust):
        raise UserError(f"{doubt}; look at {paths.spec}, then add --trust to run what it names")
