"""The `points` section: configurations to try first. The searcher completes partial ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationInfo

from search_spaces.domains.conditional import Parameter, domains_by_name, parameters, walk_active
from search_spaces.domains.domain import Domain
from search_spaces.domains.field_errors import FieldErrors
from search_spaces.errors import suggest
from search_spaces.expressions import parse
from search_spaces.formulas.constraints import Tree, violated_constraint
from search_spaces.formulas.feasibility import excluded_by, steps, work_problem
from search_spaces.nested import KeyPath, show

Point = dict[str, Any]


def check_points(points: list[Point], info: ValidationInfo) -> list[Point]:
    """Points by dotted names, with the options that their parameters belong to; equal ones once.

    Raises:
        ValidationError: a value outside its domain, a name that is not searched, parameters that
            are not active together, or a violated constraint; each at its path.
    """
    if not {"space", "fixed", "constraints"} <= info.data.keys():
        return points
    space, fixed, constraints = (info.data[key] for key in ("space", "fixed", "constraints"))
    errors = FieldErrors()
    leaves: dict[str, list[Parameter]] = {}
    for leaf in parameters(space):
        if isinstance(leaf.leaf, Domain):
            leaves.setdefault(leaf.name, []).append(leaf)
    if points and all(domain.kind == "grid_search" for domain in domains_by_name(space).values()):
        errors.add((), "a space of grids alone tries every point anyway")
    size = steps([parse(text) for text in constraints], space, fixed)
    if problem := work_problem(len(points), "points", size):
        errors.add((), problem)
        errors.raise_if_any("points")
    checked = [_Checker(i, leaves, errors).point(raw, space) for i, raw in enumerate(points)]
    for i, point in enumerate(checked):
        if not errors and (text := _violation_of(point, space, fixed, constraints)):
            errors.add((i,), f"violates the constraint {text}")
    errors.raise_if_any("points")
    return list({repr(point): point for point in checked}.values())


class _Checker:
    """Checks one point, the `index`th of the list."""

    def __init__(
        self, index: int, leaves: Mapping[str, list[Parameter]], errors: FieldErrors
    ) -> None:
        self.index, self.leaves, self.errors = index, leaves, errors

    def point(self, raw: Mapping[str, Any], space: Tree) -> Point:
        given = dict(self.flat(raw))
        point = {name: value for name, (_, value) in given.items()}
        for name in given:
            if len(self.leaves[name]) == 1:  # then it determines the options that it belongs to
                point = {**dict(self.leaves[name][0].when), **point}
        walked = walk_active(space, lambda name, _: point.get(name))
        domains = {name: leaf for name, leaf, _ in walked if isinstance(leaf, Domain)}
        for name, (path, value) in given.items():
            if (fault := self.fault(name, value, domains)) is not None:
                self.errors.add(path, fault)
            elif isinstance(domains[name].lower, float) and isinstance(value, int):
                point[name] = float(value)
        return {name: point[name] for name in domains if name in point}

    def flat(
        self, raw: Mapping[str, Any], prefix: str = "", path: KeyPath = ()
    ) -> Iterator[tuple[str, tuple[KeyPath, Any]]]:
        for key, value in raw.items():
            name, here = f"{prefix}{key}", (*(path or (self.index,)), key)
            if self.errors.full:
                return
            if name in self.leaves:
                yield name, (here, value)
            elif isinstance(value, Mapping):
                yield from self.flat(value, f"{name}.", here)
            else:
                self.errors.add(here, f"'{name}' is not searched{suggest(name, self.leaves)}")

    def fault(self, name: str, value: Any, domains: Mapping[str, Domain]) -> str | None:
        if name not in domains:
            needs = " or ".join(
                ", ".join(f"{chooser} = {show(label)}" for chooser, label in leaf.when)
                for leaf in self.leaves[name]
            )
            return f"is active only with {needs}"
        if not domains[name].contains(value):
            kind, arguments = next(iter(domains[name].dump().items()))
            return f"must be a value of {kind} {show(arguments)}, got {show(value)}"
        return None


def _violation_of(point: Point, space: Tree, fixed: Tree, constraints: Sequence[str]) -> str | None:
    """The constraint that a point violates; for a partial point, whatever the other values are."""
    walked = walk_active(space, lambda name, _: point.get(name))
    if all(name in point for name, leaf, _ in walked if isinstance(leaf, Domain)):
        return violated_constraint(constraints, space, fixed, point)
    return excluded_by(constraints, space, fixed, point)
