"""Whether a space has any configuration that keeps its constraints: proven empty, or searched."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.domains.conditional import ComputedValue, parameters
from search_spaces.domains.domain import Domain
from search_spaces.domains.field_errors import FieldErrors
from search_spaces.domains.fixed import fixed_formulas
from search_spaces.domains.grid import Point, grid_points
from search_spaces.domains.sampling import draw_at_random
from search_spaces.expressions import Expression, UndefinedError, parse
from search_spaces.formulas.constraints import (
    FormulaTypeError,
    Tree,
    check_formulas,
    evaluation_order,
    fixed_values,
    formula_positions,
    holds,
    names,
    parse_constraints,
    resolve_values,
)
from search_spaces.formulas.intervals import (
    Interval,
    evaluate_range,
    interval,
    partition,
    side_ranges,
)
from search_spaces.nested import show

DRAWS, LEAST = 10_000, 64
"""Random configurations of which one must keep all constraints, and how many are drawn anyway."""


def check_constraints(constraints: Sequence[str], space: Tree, fixed: Tree) -> None:
    """Refuse formulas that make no sense in this space, and constraints that nothing keeps.

    Raises:
        ValidationError: every mistake, each at its path.
    """
    problems = FieldErrors()
    check_formulas(space, fixed, problems)
    parsed = parse_constraints(constraints, names(space, fixed), problems)
    computed = any(isinstance(leaf.leaf, ComputedValue) for leaf in parameters(space))
    if not problems and (parsed or computed or any(fixed_formulas(fixed))):
        _check_feasible(parsed, space, fixed, problems)
    problems.raise_if_any("constraints")


def _check_feasible(
    constraints: Sequence[Expression], space: Tree, fixed: Tree, problems: FieldErrors
) -> None:
    """Refuse constraints that no configuration keeps, with the reason."""
    parts = [_whole(box, space, fixed) for box in partition(_always_there(space))]
    for i, expression in enumerate(constraints):
        if all(evaluate_range(expression, part) is False for part in parts):
            problems.add((i,), f"never holds{_why(expression, parts)}: {expression.text}")
    if not problems and all(any(evaluate_range(e, p) is False for e in constraints) for p in parts):
        problems.add((), "no configuration keeps all of them together")
    if not problems:
        _draw_some(constraints, space, fixed, problems)


def feasible_grid_points(constraints: Sequence[str], space: Tree, fixed: Tree) -> list[Point]:
    """The points of the space's grids that the constraints do not exclude; `[{}]` without grids."""
    parsed = [parse(text) for text in constraints]
    points = grid_points(space)
    return [p for p in points if not parsed or excluded_by(parsed, space, fixed, p) is None]


def excluded_by(
    constraints: Sequence[Expression], space: Tree, fixed: Tree, given: Mapping[str, Any]
) -> str | None:
    """The first constraint that is broken whatever is picked beside the given values."""
    ranges = {name: interval(domain) for name, domain in _always_there(space).items()}
    part = _whole({**ranges, **given}, space, fixed)
    return next((e.text for e in constraints if evaluate_range(e, part) is False), None)


def _always_there(space: Tree) -> dict[str, Domain]:
    leaves = (leaf for leaf in parameters(space) if not leaf.when)
    return {leaf.name: leaf.leaf for leaf in leaves if isinstance(leaf.leaf, Domain)}


def _whole(part: Mapping[str, Any], space: Tree, fixed: Tree) -> dict[str, Any]:
    """A part of the space together with fixed and computed values."""
    known = {**dict(fixed_values(fixed)), **part}
    waiting = dict(fixed_formulas(fixed))
    for leaf in parameters(space):
        if isinstance(leaf.leaf, ComputedValue) and not leaf.when:
            waiting[leaf.name] = leaf.leaf
    for name in evaluation_order(waiting):
        known[name] = evaluate_range(waiting[name].expression, known)
    return known


def _why(expression: Expression, parts: Sequence[Mapping[str, Any]]) -> str:
    """What the left side comes to at least and at most, where that can be said."""
    lefts = [(side_ranges(expression, part) or (None,))[0] for part in parts]
    ranges = [v if isinstance(v, Interval) else Interval(v, v) for v in lefts if _is_number(v)]
    if len(ranges) < len(lefts):
        return ""
    low, high = min(r.low for r in ranges), max(r.high for r in ranges)
    return f" (the left side is from {low:g} to {high:g})"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Interval))


def _draw_some(
    constraints: Sequence[Expression], space: Tree, fixed: Tree, problems: FieldErrors
) -> None:
    """Look for a configuration that keeps all; find formulas that do not fit their values."""
    rng, held, found = random.Random(0), Counter[str](), False
    undefined = ""
    for count in range(DRAWS):
        if found and count >= LEAST:
            return
        params = draw_at_random(space, rng)
        try:
            known = resolve_values(space, fixed, params)
        except UndefinedError as e:
            undefined = str(e)
            continue
        except FormulaTypeError as e:
            section, path, _ = formula_positions(space, fixed)[e.name]
            problems.add(path, str(e), section=section)
            return
        kept = [_kept(i, e, known, problems) for i, e in enumerate(constraints)]
        if problems:
            return
        held.update(e.text for e, kept_it in zip(constraints, kept, strict=True) if kept_it)
        found = found or all(kept)
    if not found:
        problems.add((), _none_found(constraints, held, undefined))


def _kept(i: int, e: Expression, known: Mapping[str, Any], problems: FieldErrors) -> bool:
    try:
        return holds(e, known)
    except TypeError as error:
        where = ", ".join(f"{n} = {show(known[n])}" for n in e.names if n in known)
        problems.add((i,), f"does not fit its values ({where}): {error}")
        return False


def _none_found(constraints: Sequence[Expression], held: Counter[str], undefined: str) -> str:
    if not constraints:
        return f"no configuration has all computed values: {undefined}"
    rarest = sorted(constraints, key=lambda e: held[e.text])[:3]
    each = ", ".join(f"{e.text} held in {held[e.text]}" for e in rarest)
    return f"none of {DRAWS} random configurations keeps all of them; {each}"
