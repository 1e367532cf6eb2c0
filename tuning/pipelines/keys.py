"""The key of a stage: a digest of all that decides what it puts out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import walk
from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.references import folder_references, model_reference
from search_spaces.pipeline.stages import DataStage, EvaluateStage, Stage, TrainStage
from trainables.data.shared_folder import content_digest
from trainables.data.stage.files import input_files, tokenizer_source
from trainables.data.stage.prepare import VERSION
from trainables.registry import resolve_for

_NOT_IN_KEY = {"name", "after", "choose_by", "overrides", "sweep", "directory", "workers"}
_FOR_PEOPLE = {"tracking", "notify", "monitoring", "redact", "prices"}
_OF_STORAGE = {"name", "description", "storage", *_FOR_PEOPLE}
"""Keys of a sweep that do not change its models."""


def stage_keys(pipeline: LoadedPipeline, cache: Path) -> dict[str, str]:
    """The key of each stage, SHA-256 in hex; stages of one key put out the same.

    Args:
        pipeline: the file.
        cache: keeps the digests of large files, by their names, sizes and times.
    """
    keys: dict[str, str] = {}
    for name in pipeline.order:
        stage = pipeline.stages[name]
        inputs = {other: keys[other] for other in dependencies(name, pipeline.stages)}
        code: Mapping[str, str] = {}  # its version, if results depend on more than the keys
        if isinstance(stage, TrainStage):
            code = resolve_for(pipeline.sweeps[name].spec).source()
        elif isinstance(stage, DataStage):
            code = {"data": str(VERSION)}
        content = {"kind": stage.kind, "inputs": inputs, "code": code}
        content |= {"configuration": _configuration(stage, pipeline, cache)}
        text = json.dumps(content, sort_keys=True, default=str)
        keys[name] = hashlib.sha256(text.encode()).hexdigest()
    return keys


def _configuration(stage: Stage, pipeline: LoadedPipeline, cache: Path) -> dict[str, Any]:
    found = stage.model_dump(mode="json", by_alias=False, exclude=_NOT_IN_KEY)
    if isinstance(stage, TrainStage):
        spec = pipeline.sweeps[stage.name].spec
        found["sweep"] = spec.model_dump(mode="json", exclude=_OF_STORAGE)
        if files := _own_files(pipeline.sweeps[stage.name]):
            found["files"] = [content_digest(file, cache) for file in files]
    for key in stage.models:
        model = model_reference(getattr(stage, key))
        owner = pipeline.stages[model.stage] if model else None
        if model and model.role == "winner" and isinstance(owner, TrainStage):
            found["chosen_by"] = owner.choose_by
    if isinstance(stage, EvaluateStage):
        paths = [pipeline.directory / name for name in stage.tasks]
        files = [file for path in paths for file in (path, *sorted(path.rglob("*")))]
        found["files"] = [_digest(file) for file in files if file.is_file()]
    if isinstance(stage, DataStage):
        files = input_files(stage.paths, pipeline.directory)
        found["files"] = [content_digest(file, cache) for file in files]
        filter_ = pipeline.directory / (stage.keep_if or "").rpartition(":")[0]
        found["filter"] = _digest(filter_) if stage.keep_if else ""
        if isinstance(stage.tokenizer, str):
            folder = Path(tokenizer_source(stage.tokenizer, pipeline.directory))
            found["tokenizer"] = _digest(folder / "tokenizer.json") if folder.is_dir() else None
    return found


def _own_files(sweep: LoadedSweep) -> list[Path]:
    """The data that a sweep names itself, `data.paths` and `data.selection`; that of no stage."""
    data = sweep.spec.fixed.get("data")
    given = [data.get("paths"), data.get("selection")] if isinstance(data, dict) else []
    globs = [value for _, value in walk(given) if isinstance(value, str)]
    plain = [glob for glob in globs if not list(folder_references([glob]))]
    return input_files(plain, sweep.path.absolute().parent)


def _digest(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
