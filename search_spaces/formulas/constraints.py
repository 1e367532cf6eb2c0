"""What holds between parameters: values that are computed from others, and constraints.

A name that a configuration does not have (an option that was not chosen) is left alone: a value
computed from it is left out too, and a constraint that comes to it does not apply.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from search_spaces.domains.conditional import (
    ComputedValue,
    Constant,
    is_formula,
    parameters,
    walk_active,
)
from search_spaces.domains.field_errors import FieldErrors
from search_spaces.domains.fixed import fixed_formulas
from search_spaces.errors import suggest
from search_spaces.expressions import (
    Expression,
    InactiveError,
    UndefinedError,
    evaluate,
    parse,
)
from search_spaces.nested import KeyPath, dotted, merge, nested, walk

Tree = Mapping[str, Any]


class FormulaTypeError(TypeError):
    """A computed value's formula does not fit what it is computed from.

    Attributes:
        name: of the computed value.
    """

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(f"the formula does not fit its values: {reason}")
        self.name = name


def resolve_values(space: Tree, fixed: Tree, params: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of a configuration by its dotted name: fixed, picked, constant and computed.

    Raises:
        UndefinedError: a computed value has none here.
        FormulaTypeError: a formula computes with what is no number.
    """
    known = dict(fixed_values(fixed))
    waiting = dict(fixed_formulas(fixed))
    for name, leaf, value in walk_active(space, lambda name, _: params.get(name)):
        if isinstance(leaf, ComputedValue):
            waiting[name] = leaf
        elif isinstance(leaf, Constant) or name in params:
            known[name] = value
    for name in evaluation_order(waiting):
        try:
            known[name] = _tidy(evaluate(waiting[name].expression, known))
        except InactiveError:
            continue
        except TypeError as e:
            raise FormulaTypeError(name, e) from e
    return known


def configuration(space: Tree, fixed: Tree, params: Mapping[str, Any]) -> dict[str, Any]:
    """What the trainable is given, nested: only what is active."""
    known = resolve_values(space, fixed, params)
    of_fixed = {name for name, _ in fixed_values(fixed)}
    laid = {name: value for name, value in known.items() if name not in of_fixed}
    return merge(_without_formulas(fixed), nested({**params, **laid}))


def broken(
    constraints: Sequence[str], space: Tree, fixed: Tree, params: Mapping[str, Any]
) -> str | None:
    """The first constraint that a configuration breaks; None when it keeps them all.

    A constraint, or a computed value, that has no value there counts as broken.
    """
    try:
        known = resolve_values(space, fixed, params)
    except UndefinedError as e:
        return str(e)
    return next((text for text in constraints if not holds(parse(text), known)), None)


def holds(constraint: Expression, known: Mapping[str, Any]) -> bool:
    """Whether a constraint holds, or does not apply."""
    try:
        return bool(evaluate(constraint, known))
    except InactiveError:
        return True
    except UndefinedError:
        return False


def check_formulas(space: Tree, fixed: Tree, problems: FieldErrors) -> None:
    """Refuse formulas that speak of unknown names, or of each other in a circle."""
    known, found = names(space, fixed), formula_positions(space, fixed)
    for section, path, formula in found.values():
        for fault in unknown_name_errors(formula.expression, known):
            problems.add(path, fault, section=section)
    try:
        evaluation_order({name: formula for name, (_, _, formula) in found.items()})
    except CycleError as e:
        circle = e.args[1]
        section, path, _ = found[circle[0]]
        text = f"computed in a circle: {' <- '.join(circle)}"
        problems.add(path, text, section=section)


def formula_positions(space: Tree, fixed: Tree) -> dict[str, tuple[str, KeyPath, ComputedValue]]:
    """Where each computed value stands: section of the file, path in it, formula."""
    found: dict[str, tuple[str, KeyPath, ComputedValue]] = {}
    for leaf in parameters(space):
        if isinstance(leaf.leaf, ComputedValue):
            found[leaf.name] = ("space", leaf.path, leaf.leaf)
    for name, formula in fixed_formulas(fixed):
        found[name] = ("fixed", tuple(name.split(".")), formula)
    return found


def parse_constraints(
    constraints: Sequence[str], known: set[str] | None, problems: FieldErrors
) -> list[Expression]:
    """The constraints, parsed; what is wrong with one is noted at its index.

    Args:
        constraints: as they were written.
        known: names that they may speak of; None where any will do.
        problems: of all of them.
    """
    parsed = []
    for i, text in enumerate(constraints):
        try:
            expression = parse(text)
        except ValueError as e:
            problems.add((i,), str(e))
            continue
        for fault in () if known is None else unknown_name_errors(expression, known):
            problems.add((i,), fault)
        if isinstance(expression.tree, (ast.BinOp, ast.Call, ast.List, ast.Tuple, ast.Constant)):
            problems.add((i,), f"a constraint is true or false, like {text} <= 1, got {text}")
        parsed.append(expression)
    return parsed


def names(space: Tree, fixed: Tree) -> set[str]:
    """Every dotted name that a formula may speak of."""
    return {leaf.name for leaf in parameters(space)} | {
        dotted(path) for path, value in walk(fixed) if path and not isinstance(value, Mapping)
    }


def unknown_name_errors(expression: Expression, known: set[str]) -> Iterator[str]:
    """What is wrong with the names in a formula, one line each."""
    for name in expression.names:
        if name in known:
            continue
        inside = sorted(k for k in known if k.startswith(f"{name}."))
        hint = (
            f"; it is a group, name one of {', '.join(inside)}" if inside else suggest(name, known)
        )
        yield f"unknown parameter '{name}'{hint}"


def fixed_values(fixed: Tree) -> Iterator[tuple[str, Any]]:
    """Dotted name and value of what is fixed and not computed."""
    for path, value in walk(fixed):
        named = path and all(isinstance(part, str) for part in path)
        if named and not isinstance(value, Mapping) and not is_formula(value):
            yield dotted(path), value


def _without_formulas(tree: Tree) -> dict[str, Any]:
    return {
        key: _without_formulas(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if not is_formula(value)
    }


def evaluation_order(waiting: Mapping[str, ComputedValue]) -> list[str]:
    """Formulas so that each comes after those that it needs."""
    graph = {
        name: [n for n in formula.expression.names if n in waiting]
        for name, formula in waiting.items()
    }
    return list(TopologicalSorter(graph).static_order())


def _tidy(value: Any) -> Any:
    """A whole result as a whole number: 0.1 * 120 is wanted as 12 steps."""
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 2**53:
        whole = round(value)
        return whole if math.isclose(value, whole, rel_tol=1e-9, abs_tol=0) else value
    return value
