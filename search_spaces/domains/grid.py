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
    tree: dict[str, Any] = {}
    for key, node in space.items():
        if isinstance(node, Domain):
            tree[key] = _grid(key, node)
        elif isinstance(node, ConditionalChoice):
            options = tuple(as_grids(option) for option in node.options)
            tree[key] = node.model_copy(update={"kind": "grid_search", "options": options})
        else:
            tree[key] = as_grids(node) if isinstance(node, Mapping) else node
    if (size := math.prod(_size(node) for node in tree.values())) > MAX_POINTS:
        raise ValueError(f"grid has {size} points, more than {MAX_POINTS}; list fewer values")
    return tree


def _grid(name: str, domain: Domain) -> Domain:
    if domain.is_categorical:
        values = list(domain.categories)
    elif domain.q is not None:
        first, last = (round(bound / domain.q) for bound in (domain.lower, domain.high))
        values = [domain.multiple(i) for i in range(first, last + 1)]
    elif domain.integer:
        values = list(range(int(domain.lower), int(domain.high) + 1))
    else:
        raise ValueError(
            f"grid needs values that can be listed, but {name} is {domain.kind}; "
            "write {grid_search: [...]}, or quniform"
        )
    return Domain.model_validate({"grid_search": values})


def _size(node: object) -> int:
    if isinstance(node, Domain):
        return len(node.categories)
    if isinstance(node, ConditionalChoice):
        return sum(_size(option) for option in node.options)
    return math.prod(_size(n) for n in node.values()) if isinstance(node, Mapping) else 1
