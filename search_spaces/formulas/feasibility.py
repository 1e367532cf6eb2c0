"""Checks that a configuration of a space can satisfy its constraints.

Random draws look for one; interval arithmetic proves which values a constraint excludes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationInfo

from search_spaces.domains.conditional import ComputedValue, draw_at_random, parameters
from search_spaces.domains.domain import Domain
from search_spaces.domains.field_errors import FieldErrors
from search_spaces.domains.grid import Point, grid_points, grid_size
from search_spaces.domains.parser import fixed_formulas
from search_spaces.expressions import Expression, parse
from search_spaces.formulas.constraints import (
    FormulaTypeError,
    Tree,
    check_formulas,
    evaluation_order,
    fixed_values,
    formula_positions,
    known_names,
    parse_constraints,
    resolve_values,
)
from search_spaces.formulas.evaluation import (
    InactiveError,
    UndefinedError,
    evaluate,
    evaluate_range,
    interval,
    left_side_range,
)
from search_spaces.limits import check_time, limit
from search_spaces.nested import flattened, show

DRAWS, MIN_DRAWS = 10_000, 64
"""Random configurations of which one must satisfy all constraints, and how many are always drawn,
to find formulas that cannot be applied to their values.
"""
MAX_OPERATIONS, MAX_WORK, WIDE_WORK, MAX_GRID_WORK = 2000, 300_000, 10**9, 1_100_000
"""Values and operations of all formulas of a file, and the `steps` of all configurations that are
checked; a step takes one to three microseconds. The wide limit is for all draws of all files. Of a
grid: the points, times the operations of each.
"""


def check_constraints(constraints: list[str], info: ValidationInfo) -> list[str]:
    """Refuse formulas that are invalid in this space, and constraints that nothing satisfies.

    Raises:
        ValidationError: every mistake, each at its path.
    """
    if not {"space", "fixed"} <= info.data.keys():
        return constraints
    space, fixed, errors = info.data["space"], info.data["fixed"], FieldErrors()
    check_formulas(space, fixed, errors)
    parsed = parse_constraints(constraints, known_names(space, fixed), errors)
    computed = any(isinstance(leaf.leaf, ComputedValue) for leaf in parameters(space))
    if parsed or computed or any(fixed_formulas(fixed)):
        for check in (_check_work, _check_feasible):
            if not errors:
                check(parsed, space, fixed, errors)
    errors.raise_if_any("constraints")
    return constraints


def work_problem(count: int, what: str, size: int) -> str | None:
    """The refusal of `count` configurations of `size` steps each, if they take too long."""
    if count * size <= limit(MAX_WORK):
        return None
    return f"{count} {what} are too many for {size} parameters, fixed values and operations"


def grid_problem(constraints: Sequence[Expression], space: Tree, fixed: Tree) -> str | None:
    """The refusal of a space whose grid points take too long to check."""
    points, count = grid_size(space), _operations(constraints, space, fixed)
    if not constraints or points * count <= limit(MAX_GRID_WORK):
        return None
    return f"{points} grid points are too many for {count} values and operations of formulas"


def steps(constraints: Sequence[Expression], space: Tree, fixed: Tree) -> int:
    """What is computed for one configuration: parameters, fixed values, operations of formulas."""
    values = sum(1 for _ in parameters(space)) + len(flattened(fixed))
    return values + _operations(constraints, space, fixed)


def _operations(constraints: Sequence[Expression], space: Tree, fixed: Tree) -> int:
    leaves = [leaf.leaf for leaf in parameters(space)]
    computed = [leaf for leaf in leaves if isinstance(leaf, ComputedValue)]
    computed += [formula for _, formula in fixed_formulas(fixed)]
    ordering = 10 * len(computed)  # to sort them costs more than to compute them
    return ordering + sum(e.operations for e in (*constraints, *(f.expression for f in computed)))


def _check_work(
    constraints: Sequence[Expression], space: Tree, fixed: Tree, errors: FieldErrors
) -> None:
    if (count := _operations(constraints, space, fixed)) > limit(MAX_OPERATIONS):
        errors.add((), f"all formulas have {count} operations, more than {MAX_OPERATIONS}")
    elif problem := grid_problem(constraints, space, fixed):
        errors.add((), problem)


def _check_feasible(
    constraints: Sequence[Expression], space: Tree, fixed: Tree, errors: FieldErrors
) -> None:
    """Refuse constraints that no configuration satisfies, with the reason."""
    ranges = _Ranges(space, fixed).where({})
    for i, expression in enumerate(constraints):
        if evaluate_range(expression, ranges) is False:
            left = left_side_range(expression, ranges)
            where = f" (the left side is from {left.low:g} to {left.high:g})" if left else ""
            errors.add((i,), f"never holds{where}: {expression.text}")
    if not errors:
        _check_by_sampling(constraints, space, fixed, errors)


def feasible_grid_points(constraints: Sequence[str], space: Tree, fixed: Tree) -> list[Point]:
    """Grid points for which the constraints leave a configuration; `[{}]` without grids.

    A point is left out only if it is proven that no value of the sampled parameters fits it.
    """
    points = grid_points(space)
    if not constraints:
        return points
    ranges, parsed = _Ranges(space, fixed), [parse(text) for text in constraints]
    return [point for point in points if ranges.excluded_by(parsed, point) is None]


def excluded_by(
    constraints: Sequence[str], space: Tree, fixed: Tree, given: Mapping[str, Any]
) -> str | None:
    """The first constraint that the given values violate whatever the other parameters are."""
    return _Ranges(space, fixed).excluded_by([parse(text) for text in constraints], given)


class _Ranges:
    """Name to value or range: fixed and computed values, and all unconditional domains."""

    def __init__(self, space: Tree, fixed: Tree) -> None:
        self.known, waiting = dict(fixed_values(fixed)), dict(fixed_formulas(fixed))
        for parameter in parameters(space):
            if not parameter.when and isinstance(parameter.leaf, Domain):
                self.known[parameter.name] = interval(parameter.leaf)
            elif not parameter.when and isinstance(parameter.leaf, ComputedValue):
                waiting[parameter.name] = parameter.leaf
        self.computed = [(name, waiting[name].expression) for name in evaluation_order(waiting)]

    def where(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The ranges if some parameters have the given values."""
        check_time()
        known = {**self.known, **given}
        for name, expression in self.computed:
            known[name] = evaluate_range(expression, known)
        return known

    def excluded_by(
        self, constraints: Sequence[Expression], given: Mapping[str, Any]
    ) -> str | None:
        """The first constraint that no configuration with the given values satisfies."""
        known = self.where(given)
        return next((e.text for e in constraints if evaluate_range(e, known) is False), None)


def _check_by_sampling(
    constraints: Sequence[Expression], space: Tree, fixed: Tree, errors: FieldErrors
) -> None:
    """Look for a configuration that satisfies all; find formulas that do not fit their values."""
    rng, satisfied, found = random.Random(0), Counter[str](), False
    undefined: dict[str, str] = {}
    work = int(limit(MAX_WORK, WIDE_WORK))
    draws = min(DRAWS, max(MIN_DRAWS, work // steps(constraints, space, fixed)))
    for count in range(draws):
        if found and count >= MIN_DRAWS:
            return
        check_time()
        params = draw_at_random(space, rng)
        try:
            known = resolve_values(space, fixed, params)
        except UndefinedError as e:
            undefined[""] = str(e)
            continue
        except FormulaTypeError as e:
            section, path, _ = formula_positions(space, fixed)[e.name]
            errors.add(path, str(e), section=section)
            return
        holding = [_satisfies(i, e, known, errors, undefined) for i, e in enumerate(constraints)]
        if errors:
            return
        satisfied.update(e.text for e, held in zip(constraints, holding, strict=True) if held)
        found = found or all(holding)
    if not found:
        errors.add((), _none_found(constraints, satisfied, undefined, draws))


def _satisfies(
    i: int,
    e: Expression,
    known: Mapping[str, Any],
    errors: FieldErrors,
    undefined: dict[str, str],
) -> bool:
    """Like `holds`; records a formula that has no value, or does not fit its values."""
    try:
        return bool(evaluate(e, known))
    except InactiveError:
        return True
    except UndefinedError as error:
        undefined[e.text] = str(error)
        return False
    except TypeError as error:
        where = ", ".join(f"{n} = {show(known[n])}" for n in e.names if n in known)
        errors.add((i,), f"does not fit its values ({where}): {error}")
        return False


def _none_found(
    constraints: Sequence[Expression],
    satisfied: Counter[str],
    undefined: Mapping[str, str],
    draws: int,
) -> str:
    if not constraints:
        return f"no configuration has all computed values: {undefined.get('')}"
    rarest = sorted(constraints, key=lambda e: satisfied[e.text])[:3]
    each = ", ".join(
        undefined[e.text]
        if e.text in undefined and not satisfied[e.text]
        else f"{e.text} held in {satisfied[e.text]}"
        for e in rarest
    )
    return f"none of {draws} random configurations satisfies all of them; {each}"
