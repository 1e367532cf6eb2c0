"""Finds the sweep or data stage in whose folder a configured path lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from results.records.pipeline import pipeline_of
from search_spaces.nested import dotted, walk


@dataclass(frozen=True)
class Source:
    """What a configured path leads to.

    Attributes:
        folder: of a sweep, or of a stage of another kind.
        model: the trial or soup of the sweep; empty if the folder is no sweep.
    """

    folder: Path
    model: str = ""

    @property
    def title(self) -> str:
        """Name of the folder, with the pipeline's if it is a stage, and the model."""
        return f"{title_of(self.folder)} {self.model}".rstrip()


def title_of(folder: Path) -> str:
    """`stories/sft` for a stage of a pipeline; else the folder's name."""
    pipeline = pipeline_of(folder)
    return f"{pipeline.name}/{folder.name}" if pipeline else folder.name


def sources_in(values: Any) -> Iterator[tuple[str, str, Source]]:
    """The paths in plain data that lead into a sweep or a stage: dotted key, path and source."""
    for path, value in walk(values):
        if isinstance(value, str) and (found := source_of(value)) is not None:
            yield dotted(path), value, found


def source_of(path: str) -> Source | None:
    """The sweep or stage in whose folder a path lies; None if it is in none."""
    if "/" not in path:
        return None
    try:
        return _source(Path(path).absolute())
    except (OSError, ValueError):  # a text that is no path: too long, or with a zero byte
        return None


def _source(whole: Path) -> Source | None:
    for folder in whole.parents:
        inside = whole.relative_to(folder).parts
        sweep = SweepPaths(folder)
        if sweep.is_sweep:
            model = _model(sweep, inside)
            return Source(folder, model) if model else None
        if pipeline_of(folder):
            return Source(folder)
    return None


def _model(sweep: SweepPaths, inside: tuple[str, ...]) -> str:
    """The trial or soup to which a path below the folder of a sweep belongs; empty if to none."""
    match inside:
        case ("trials", trial, *_):
            return trial
        case ("results", "soups", soup, *_):
            return soup
        case ("results", "exports", export, *_):
            return export.rpartition("-")[0]
    return ""
