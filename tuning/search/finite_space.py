"""Spaces with so few configurations that all of them can be listed."""

from __future__ import annotations

from typing import Any

from search_spaces.domains.conditional import parameters
from search_spaces.domains.domain import Domain
from search_spaces.domains.grid import as_grids, grid_size
from search_spaces.formulas.feasibility import feasible_grid_points
from search_spaces.spec.sweep import SweepSpec

MAX_LISTED = 10_000


def is_finite(spec: SweepSpec) -> bool:
    """Whether each domain has a number of values: none is continuous."""
    domains = [p.leaf for p in parameters(spec.space) if isinstance(p.leaf, Domain)]
    return all(d.is_categorical or d.q is not None or d.integer for d in domains)


def list_configurations(spec: SweepSpec) -> list[dict[str, Any]] | None:
    """Every configuration that the constraints allow, by dotted name; None if they are too many."""
    if not is_finite(spec):
        return None
    try:
        grids = as_grids(spec.space)
    except ValueError:
        return None
    if grid_size(grids) > MAX_LISTED:
        return None
    return feasible_grid_points(spec.constraints, grids, spec.fixed)
