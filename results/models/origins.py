"""The sweep or data stage in whose folder a configured path lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from results.records.pipeline import pipeline_of
from search_spaces.nested import dotted, walk


@dataclass(frozen=True)
class Origin:
    """The sweep or stage to which a configured path leads.

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


def origins_in(values: Any) -> Iterator[tuple[str, str, Origin]]:
    """The paths in plain data that lead into a sweep or a stage: dotted key, path and origin."""
    for path, value in walk(values):
        if isinstance(value, str) and (found := origin_of(value)) is not None:
            yield dotted(path), value, found


def origin_of(path: str) -> Origin | None:
    """The sweep or stage in whose folder a path lies; None if it is in none."""
    if "/" not in path:
        return None
    try:
        whole = Path(path).absolute()
        for folder in whole.parents:
            if (sweep := SweepPaths(folder)).is_sweep:
                model = _model(whole.relative_to(folder).parts)
                return Origin(sweep.root, model) if model else None
            if pipeline_of(folder):
                return Origin(folder)
    except (OSError, ValueError):  # a text that is no path: too long, or with a zero byte
        pass
    return None


def _model(inside: tuple[str, ...]) -> str:
    """The trial or soup to which a path below the folder of a sweep belongs; empty if to none."""
    match inside:
        case ("trials", model, *_) | ("results", "soups", model, *_):
            return model
        case ("results", "exports", export, *_):
            return export.rpartition("-")[0]
    return ""
