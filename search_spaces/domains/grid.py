"""The points of the `grid_search` parameters: every combination, grids inside options included."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from search_spaces.domains.conditional import Branches
from search_spaces.domains.domain import Domain

Point = dict[str, Any]


def grid_points(tree: Mapping[str, Any], prefix: str = "") -> list[Point]:
    """Every combination of a space's grids, the last one varying fastest; `[{}]` without any."""
    parts = [_points(node, f"{prefix}{key}") for key, node in tree.items()]
    return [_joined(combination) for combination in itertools.product(*parts)]


def _points(node: Any, name: str) -> list[Point]:
    if isinstance(node, Domain):
        return [{name: v} for v in node.categories] if node.kind == "grid_search" else [{}]
    if isinstance(node, Branches) and node.kind == "grid_search":
        selector, inner = node.names(name)
        return [
            {selector: label, **point}
            for label, option in zip(node.labels, node.options, strict=True)
            for point in grid_points(option, inner)
        ]
    if isinstance(node, Mapping):
        return grid_points(node, f"{name}.")
    return [{}]


def _joined(points: tuple[Point, ...]) -> Point:
    return {name: value for point in points for name, value in point.items()}
