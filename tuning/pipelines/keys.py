"""The key of a stage: a digest of all that decides what it puts out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import model_reference
from search_spaces.pipeline.stages import DataStage, Stage, TrainStage
from trainables.data.files import input_files
from trainables.data.prepare import VERSION
from trainables.registry import resolve_for

_NOT_IN_KEY = {"name", "after", "choose_by", "overrides", "sweep", "directory", "workers"}
_OF_STORAGE = {"name", "description", "storage", "tracking", "notify", "redact"}
"""Keys of a sweep that do not change its models."""


def stage_keys(pipeline: LoadedPipeline) -> dict[str, str]:
    """The key of each stage, SHA-256 in hex; stages of one key put out the same."""
    keys: dict[str, str] = {}
    for name in pipeline.order:
        stage = pipeline.stages[name]
        inputs = {other: keys[other] for other in dependencies(name, pipeline.stages)}
        content = {"kind": stage.kind, "inputs": inputs, "code": _code(stage, pipeline)}
        content |= {"configuration": _configuration(stage, pipeline)}
        text = json.dumps(content, sort_keys=True, default=str)
        keys[name] = hashlib.sha256(text.encode()).hexdigest()
    return keys


def _configuration(stage: Stage, pipeline: LoadedPipeline) -> dict[str, Any]:
    found = stage.model_dump(mode="json", by_alias=False, exclude=_NOT_IN_KEY)
    if isinstance(stage, TrainStage):
        spec = pipeline.sweeps[stage.name].spec
        found["sweep"] = spec.model_dump(mode="json", exclude=_OF_STORAGE)
    for key in stage.models:
        model = model_reference(getattr(stage, key))
        owner = pipeline.stages[model.stage] if model else None
        if model and model.role == "winner" and isinstance(owner, TrainStage):
            found["chosen_by"] = owner.choose_by
    if isinstance(stage, DataStage):
        found["files"] = [_digest(file) for file in input_files(stage.paths, pipeline.directory)]
        found["filter"] = _filter_digest(stage, pipeline.directory)
    return found


def _code(stage: Stage, pipeline: LoadedPipeline) -> Mapping[str, str]:
    """The version of the code that a stage runs, if its results depend on more than its keys."""
    if isinstance(stage, TrainStage):
        return resolve_for(pipeline.sweeps[stage.name].spec).source()
    return {"data": str(VERSION)} if isinstance(stage, DataStage) else {}


def _filter_digest(stage: DataStage, directory: Path) -> str:
    if stage.keep_if is None:
        return ""
    return _digest(directory / stage.keep_if.rpartition(":")[0])


def _digest(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
