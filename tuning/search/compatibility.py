"""Which configurations a space has: whether values belong to it, of an earlier trial or of a user;
and all of them, if they are few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from results.records.trial import TrialRecord
from search_spaces.domains.conditional import parameters, walk_active
from search_spaces.domains.domain import Domain
from search_spaces.domains.grid import as_grids, grid_size
from search_spaces.errors import UserError, suggest
from search_spaces.formulas.constraints import formula_positions
from search_spaces.formulas.feasibility import feasible_grid_points
from search_spaces.nested import same, show
from search_spaces.spec.sweep import SweepSpec

_ABSENT = object()
_MOST_LISTED = 10_000


def compatible_params(spec: SweepSpec, record: TrialRecord) -> dict[str, Any] | None:
    """A trial's values of a space's parameters, by dotted name; None if the space excludes it.

    The trial is compatible if the space together with `fixed` can produce its configuration;
    parameters that it did not have are ignored. So a trial stays compatible if a fixed parameter
    is searched now and the domain contains its value, if a domain changed and still contains its
    value, or if a parameter is now fixed to its value.
    """
    params = params_in_space(spec, record.params, record.config)
    return params if params is not None and same(spec.nest(params), record.config) else None


def params_in_space(
    spec: SweepSpec, params: Mapping[str, Any], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The values that a configuration has for a space's parameters.

    Args:
        spec: has the space.
        params: searched parameters of the configuration's own sweep, by dotted name.
        config: the whole configuration, nested; other keys are ignored.

    Returns:
        Values by dotted name; None if one lies outside its domain.
    """
    had = {n: v for n in spec.domains() if (v := _value(params, config, n)) is not _ABSENT}
    active = {name: domain for name, domain in _active(spec, had).items() if name in had}
    if not all(domain.contains(had[name]) for name, domain in active.items()):
        return None
    return {name: had[name] for name in active}


def check_params(spec: SweepSpec, params: Mapping[str, Any]) -> None:
    """Refuse parameters that the space cannot produce.

    Raises:
        UserError: all mistakes, one line each.
    """
    known, active, problems = spec.domains(), _active(spec, params), []
    for name, value in params.items():
        domain = active.get(name)
        if name not in known:
            problems.append(f"{name}: {_why_unknown(spec, name)}")
        elif domain is None:
            problems.append(f"{name}: not active in this configuration; {_when(spec, name)}")
        elif not domain.contains(value):
            kind, bounds = next(iter(domain.dump().items()))
            problems.append(f"{name}: must be of {kind} {show(bounds)}, got {show(value)}")
    if problems:
        raise UserError(*problems)
    if params.keys() >= active.keys() and (rule := spec.violated_constraint(params)):
        raise UserError(f"constraints: the configuration violates {rule}")


def _why_unknown(spec: SweepSpec, name: str) -> str:
    if name in formula_positions(spec.space, spec.fixed):
        return "it is computed from the others"
    if under := [n for n in spec.domains() if n.startswith(f"{name}.")]:
        return f"give one of its parameters: {', '.join(under)}"
    return f"not in the space{suggest(name, spec.domains())}"


def _when(spec: SweepSpec, name: str) -> str:
    """The options that must be chosen for a parameter."""
    options = (leaf.when for leaf in parameters(spec.space) if leaf.name == name)
    each = [" ".join(f"{chooser}={label}" for chooser, label in when) for when in options]
    return f"choose its option too: {' or '.join(each)}"


def is_complete(spec: SweepSpec, params: Mapping[str, Any]) -> bool:
    """Whether parameters are a complete configuration of the space: exactly the active ones, each
    in its domain, and all constraints satisfied.
    """
    active = _active(spec, params)
    if params.keys() != active.keys():
        return False
    inside = all(domain.contains(params[name]) for name, domain in active.items())
    return inside and spec.violated_constraint(params) is None


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
    if grid_size(grids) > _MOST_LISTED:
        return None
    return feasible_grid_points(spec.constraints, grids, spec.fixed)


def _active(spec: SweepSpec, params: Mapping[str, Any]) -> dict[str, Domain]:
    """The domains of the parameters that are active with these values."""
    walked = walk_active(spec.space, lambda name, _: params.get(name))
    return {name: leaf for name, leaf, _ in walked if isinstance(leaf, Domain)}


def _value(params: Mapping[str, Any], config: Mapping[str, Any], name: str) -> Any:
    if name in params:
        return params[name]
    node: Any = config
    for key in name.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return _ABSENT
        node = node[key]
    return node
