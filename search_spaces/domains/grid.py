"""Grids: every combination of the `grid_search` parameters, and a whole space as a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from search_spaces.domains.conditional import ConditionalChoice
from search_spaces.domains.domain import Domain

Point = dict[str, Any]

MAX_POINTS = 100_000
"""A larger grid is refused."""


def grid_points(tree: Mapping[str, Any], prefix: str = "") -> list[Point]:
    """Every combination of a space's grids, also those inside options; the last one varies fastest.

    Without grids: `[{}]`.
    """
    parts = [_points(node, f"{prefix}{key}") for key, node in tree.items()]
    return [
        {name: value for point in combination for name, value in point.items()}
        for combination in itertools.product(*parts)
    ]


def _points(node: Any, name: str) -> list[Point]:
    if isinstance(node, Domain):
        return [{name: v} for v in node.categories] if node.kind == "grid_search" else [{}]
    if isinstance(node, ConditionalChoice) and node.kind == "grid_search":
        selector, inner = node.names(name)
        return [
            {selector: label, **point}
            for label, option in zip(node.labels, node.options, strict=True)
            for point in grid_points(option, inner)
        ]
    if isinstance(node, Mapping):
        return grid_points(node, f"{name}.")
    return [{}]


def as_grids(space: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each domain of a space by the `grid_search` of its values.

    Raises:
        ValueError: a domain cannot be listed, or there are too many points.
    """
    tree = _as_grids(space)
    if (size := grid_size(tree)) > MAX_POINTS:
        raise ValueError(f"grid has {size} points, more than {MAX_POINTS}; list fewer values")
    return tree


def _as_grids(space: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, node in space.items():
        if isinstance(node, Domain):
            tree[key] = _grid(key, node)
        elif isinstance(node, ConditionalChoice):
            options = tuple(_as_grids(option) for option in node.options)
            tree[key] = node.model_copy(update={"kind": "grid_search", "options": options})
        else:
            tree[key] = _as_grids(node) if isinstance(node, Mapping) else node
    return tree


def _grid(name: str, domain: Domain) -> Domain:
    if domain.is_categorical:
        values = list(domain.categories)
    elif domain.q is not None or domain.integer:
        step = domain.q or 1
        first, last = (round(bound / step) for bound in (domain.lower, domain.high))
        if last - first >= MAX_POINTS:
            raise ValueError(f"{name} has more than {MAX_POINTS} values; list fewer")
        values = [domain.multiple(i) if domain.q else i for i in range(first, last + 1)]
    else:
        raise ValueError(
            f"grid needs values that can be listed, but {name} is {domain.kind}; "
            "write {grid_search: [...]}, or quniform"
        )
    # not validated: they differ, and may be more than a file can list
    return Domain.model_construct(
        kind="grid_search", lower=0, upper=len(values) - 1, categories=tuple(values)
    )


def grid_size(node: object) -> int:
    """The number of `grid_points` of a space, or of a node of one."""
    if isinstance(node, Domain):
        return len(node.categories) if node.kind == "grid_search" else 1
    if isinstance(node, ConditionalChoice):
        return sum(map(grid_size, node.options)) if node.kind == "grid_search" else 1
    return math.prod(map(grid_size, node.values())) if isinstance(node, Mapping) else 1
