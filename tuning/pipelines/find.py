"""Finds pipelines, and the sweeps of their stages, by name."""

from __future__ import annotations

from pathlib import Path

from results.records.pipeline import PipelinePaths
from tuning.controller.sweep_dir.folder import resolve_storage


def find_pipeline(name: str, storage: str | None) -> PipelinePaths | None:
    """The pipeline of a name or a folder, if there is one."""
    as_path = PipelinePaths(Path(name).resolve())
    if as_path.is_pipeline:
        return as_path
    found = PipelinePaths(resolve_storage(storage).root / name)
    return found if Path(name).name == name and found.is_pipeline else None
