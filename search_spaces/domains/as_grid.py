"""A space as a grid: what the searcher `grid` tries one after another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from search_spaces.domains.conditional import Branches
from search_spaces.domains.domain import Domain
from search_spaces.domains.sampling import quantised

MOST = 100_000
"""Points of a grid; more are refused."""


def listed(domain: Domain) -> list[Any] | None:
    """Every value of a domain; None where there is no end of them."""
    if domain.is_categorical:
        return list(domain.categories)
    if domain.q is not None:
        first, last = (round(bound / domain.q) for bound in (domain.lower, domain.high))
        return [quantised(domain, i) for i in range(first, last + 1)]
    return list(range(int(domain.lower), int(domain.high) + 1)) if domain.integer else None


def as_grids(space: Mapping[str, Any]) -> dict[str, Any]:
    """The space with each domain as the `grid_search` of its values.

    Raises:
        ValueError: a domain cannot be listed, or there are too many points.
    """
    tree: dict[str, Any] = {}
    for key, node in space.items():
        if isinstance(node, Domain):
            tree[key] = _grid(key, node)
        elif isinstance(node, Branches):
            options = tuple(as_grids(option) for option in node.options)
            tree[key] = node.model_copy(update={"kind": "grid_search", "options": options})
        elif isinstance(node, Mapping):
            tree[key] = as_grids(node)
        else:
            tree[key] = node
    if (size := math.prod(_size(node) for node in tree.values())) > MOST:
        raise ValueError(f"grid has {size} points, more than {MOST}; list fewer values")
    return tree


def _grid(name: str, domain: Domain) -> Domain:
    values = listed(domain)
    if values is None:
        raise ValueError(
            f"grid needs values that can be listed, but {name} is {domain.kind}; "
            "write {grid_search: [...]}, or quniform"
        )
    return Domain.model_validate({"grid_search": values})


def _size(node: object) -> int:
    if isinstance(node, Domain):
        return len(node.categories)
    if isinstance(node, Branches):
        return sum(_size(option) for option in node.options)
    return math.prod(_size(n) for n in node.values()) if isinstance(node, Mapping) else 1
