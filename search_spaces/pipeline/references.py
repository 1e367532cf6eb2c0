"""How stages name each other: `pretrain.winner`, `pretrain.top(3)`, `{data}/train.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.nested import KeyPath, walk

_MODEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)\.(?:(winner|soup)|top\(([1-9][0-9]{0,2})\))")
_FOLDER = re.compile(r"^\{([A-Za-z0-9][A-Za-z0-9_-]*)\}(?=/|$)")
OWN = "output"
"""`{output}` of a command: the folder of its own stage."""


@dataclass(frozen=True)
class ModelReference:
    """A model of another stage.

    Attributes:
        stage: its name.
        role: winner, soup, or top.
        count: of top; else 1.
    """

    stage: str
    role: str
    count: int = 1


def model_reference(text: str | None) -> ModelReference | None:
    """The model of a stage that a text names; None: it is a folder or a hub id."""
    found = _MODEL.fullmatch(text or "")
    if found is None:
        return None
    stage, role, count = found.groups()
    return ModelReference(stage, role or "top", int(count or 1))


def looks_like_reference(text: str, stages: Mapping[str, Any]) -> bool:
    """Whether a text begins with the name of a stage, or is in the form of a reference."""
    return model_reference(text) is not None or text.partition(".")[0] in stages


@dataclass(frozen=True)
class MetricReference:
    """`max sft.exact_match`: a metric of another stage; the mode is None if it is not given."""

    stage: str
    metric: str
    mode: str | None


def metric_reference(text: str) -> MetricReference:
    """The metric that `choose_by` names."""
    first, _, rest = text.rpartition(" ")
    stage, _, metric = rest.partition(".")
    return MetricReference(stage, metric, first or None)


def folder_references(values: Any) -> Iterator[tuple[KeyPath, str]]:
    """The stages that texts name as `{stage}/…`, with the path of each text."""
    for path, value in walk(values):
        if isinstance(value, str) and (found := _FOLDER.match(value)) and found[1] != OWN:
            yield path, found[1]


def with_folders(values: Any, folders: Mapping[str, str]) -> Any:
    """A copy of plain data with `{stage}` replaced by that stage's folder."""
    if isinstance(values, Mapping):
        return {key: with_folders(value, folders) for key, value in values.items()}
    if isinstance(values, list):
        return [with_folders(value, folders) for value in values]
    if isinstance(values, str) and (found := _FOLDER.match(values)) and found[1] in folders:
        return folders[found[1]] + values[found.end() :]
    return values
