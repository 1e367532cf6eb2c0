"""Relations between parameters, computed values and constraints, and constraints on metrics.

A formula may need a parameter that a configuration does not have, because its option was not
chosen. Then a computed value is left out, and a constraint does not apply.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from search_spaces.domains.parser import fixed_formulas
from search_spaces.errors import suggest
from search_spaces.expressions import Expression, parse
from search_spaces.formulas.evaluation import InactiveError, UndefinedError, evaluate
from search_spaces.limits import limit
from search_spaces.nested import KeyPath, dotted, flattened, merge, nested, walk

Tree = Mapping[str, Any]


class FormulaTypeError(TypeError):
    """The formula of a computed value cannot be applied to its operands.

    Attributes:
        name: of the computed value.
    """

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(f"the formula does not fit its values: {reason}")
        self.name = name


def resolve_values(space: Tree, fixed: Tree, params: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of a configuration by its dotted name: fixed, picked, constant and computed.

    Raises:
        UndefinedError: a formula has no value here.
        FormulaTypeError: an operand of a formula has the wrong type.
    """
    flat = flattened(fixed)
    waiting = {n: ComputedValue(text=str(v)) for n, v in flat.items() if is_formula(v)}
    known = {n: v for n, v in flat.items() if n not in waiting and not isinstance(v, Mapping)}
    for name, leaf, value in walk_active(space, lambda name, _: params.get(name)):
        if isinstance(leaf, ComputedValue):
            waiting[name] = leaf
        elif isinstance(leaf, Constant) or name in params:
            known[name] = value
    for name in evaluation_order(waiting):
        try:
            known[name] = _as_whole_number(evaluate(waiting[name].expression, known))
        except InactiveError:
            continue
        except TypeError as e:
            raise FormulaTypeError(name, e) from e
    return known


def build_configuration(space: Tree, fixed: Tree, params: Mapping[str, Any]) -> dict[str, Any]:
    """The nested configuration that the trainable gets; only active parameters."""
    known = resolve_values(space, fixed, params)
    of_fixed = {name for name, _ in fixed_values(fixed)}
    laid = {name: value for name, value in known.items() if name not in of_fixed}
    return merge(_without_formulas(fixed), nested({**params, **laid}))


def violated_constraint(
    constraints: Sequence[str], space: Tree, fixed: Tree, params: Mapping[str, Any]
) -> str | None:
    """The first constraint that a configuration violates; None if it satisfies all.

    A constraint or a computed value that is undefined there counts as violated.
    """
    try:
        known = resolve_values(space, fixed, params)
    except UndefinedError as e:
        return str(e)
    return next((text for text in constraints if not holds(parse(text), known)), None)


def holds(constraint: Expression, values: Mapping[str, Any]) -> bool:
    """Whether a constraint holds, or does not apply."""
    try:
        return bool(evaluate(constraint, values))
    except InactiveError:
        return True
    except UndefinedError:
        return False


def check_formulas(space: Tree, fixed: Tree, errors: FieldErrors) -> None:
    """Refuse formulas that use unknown names, and circular formulas."""
    known, found = known_names(space, fixed), formula_positions(space, fixed)
    for section, path, formula in found.values():
        if errors.full:
            return
        for fault in unknown_name_errors(formula.expression, known):
            errors.add(path, fault, section=section)
    try:
        evaluation_order({name: formula for name, (_, _, formula) in found.items()})
    except CycleError as e:
        circle = e.args[1]
        section, path, _ = found[circle[0]]
        text = f"computed in a circle: {' <- '.join(circle)}"
        errors.add(path, text, section=section)


def formula_positions(space: Tree, fixed: Tree) -> dict[str, tuple[str, KeyPath, ComputedValue]]:
    """Name of each computed value to its section of the file, path in the section, and formula."""
    found: dict[str, tuple[str, KeyPath, ComputedValue]] = {}
    for leaf in parameters(space):
        if isinstance(leaf.leaf, ComputedValue):
            found[leaf.name] = ("space", leaf.path, leaf.leaf)
    for name, formula in fixed_formulas(fixed):
        found[name] = ("fixed", tuple(name.split(".")), formula)
    return found


def parse_constraints(
    constraints: Sequence[str], known: set[str] | None, errors: FieldErrors
) -> list[Expression]:
    """Parse constraints; a mistake is recorded at the constraint's index.

    Args:
        constraints: as written in the file.
        known: names that they may use; None if any name is allowed.
        errors: collects the mistakes.
    """
    parsed = []
    for i, text in enumerate(constraints):
        if errors.full:
            break
        try:
            expression = parse(text)
        except ValueError as e:
            errors.add((i,), str(e))
            continue
        for fault in () if known is None else unknown_name_errors(expression, known):
            errors.add((i,), fault)
        if isinstance(expression.tree, (ast.BinOp, ast.Call, ast.List, ast.Tuple, ast.Constant)):
            errors.add((i,), f"a constraint is true or false, like {text} <= 1, got {text}")
        parsed.append(expression)
    return parsed


def known_names(space: Tree, fixed: Tree) -> set[str]:
    """Every dotted name that a formula may use."""
    return {leaf.name for leaf in parameters(space)} | {
        dotted(path) for path, value in walk(fixed) if path and not isinstance(value, Mapping)
    }


def unknown_name_errors(expression: Expression, known: set[str]) -> Iterator[str]:
    """Yield a line for each name in a formula that is unknown."""
    for name in expression.names:
        if name in known:
            continue
        hint = suggest(name, {k for k in known if k.replace(".", "").isidentifier()} or known)
        if inside := sorted(k for k in known if k.startswith(f"{name}.")):
            hint = f"; it is a group, name one of {', '.join(inside)}"
        yield f"unknown parameter '{name}'{quoting_hint(expression, known, 'param') or hint}"


def quoting_hint(expression: Expression, known: Iterable[str], quote: str) -> str:
    """End of an error line, if a formula reads a known name as an operation: how to name it."""
    text = expression.text.replace(" ", "")
    missed = [k for k in known if k in text and not k.replace(".", "").isidentifier()]
    odd = max((k for k in missed if k not in expression.names), key=len, default=None)
    return f"; to name '{odd}', write {quote}(\"{odd}\")" if odd else ""


def fixed_values(fixed: Tree) -> Iterator[tuple[str, Any]]:
    """Yield dotted name and value of everything under `fixed` that is not computed."""
    for name, value in flattened(fixed).items():
        if not isinstance(value, Mapping) and not is_formula(value):
            yield name, value


def _without_formulas(tree: Tree) -> dict[str, Any]:
    return {
        key: _without_formulas(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if not is_formula(value)
    }


def evaluation_order(waiting: Mapping[str, ComputedValue]) -> list[str]:
    """Names of computed values, each after those that it needs."""
    graph = {
        name: [n for n in formula.expression.names if n in waiting]
        for name, formula in waiting.items()
    }
    return list(TopologicalSorter(graph).static_order())


def _as_whole_number(value: Any) -> Any:
    """A whole result as an `int`: 0.1 * 120 gives 12 steps."""
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 2**53:
        whole = round(value)
        return whole if math.isclose(value, whole, rel_tol=1e-9, abs_tol=0) else value
    return value


MAX_CONSTRAINTS = 100
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_outcome_constraints(constraints: list[str]) -> list[str]:
    """Refuse texts that are not a true-or-false formula of metrics.

    Raises:
        ValidationError: every mistake, each at its index.
    """
    errors = FieldErrors()
    if len(constraints) > limit(MAX_CONSTRAINTS):
        errors.add((), f"at most {MAX_CONSTRAINTS} formulas, got {len(constraints)}")
        errors.raise_if_any("outcome_constraints")
    for expression in parse_constraints(constraints, None, errors):
        if not expression.names:
            errors.add((constraints.index(expression.text),), "names no metric")
    errors.raise_if_any("outcome_constraints")
    return constraints


def violations(constraints: Sequence[str], metrics: Mapping[str, float]) -> dict[str, float]:
    """The size of the violation of each constraint; zero or less where it holds.

    The unit is that of the compared sides. The violation is 1 if the constraint is not a
    comparison, or if a metric was never reported or is not finite.
    """
    return {text: _violation(parse(text), metrics) for text in constraints}


def _violation(constraint: Expression, metrics: Mapping[str, float]) -> float:
    try:
        if evaluate(constraint, metrics):
            return -max(0.0, _distance(constraint, metrics) or 0.0)
        return _distance(constraint, metrics) or 1.0
    except (InactiveError, UndefinedError, TypeError):
        return 1.0


def _distance(constraint: Expression, metrics: Mapping[str, float]) -> float | None:
    """The distance between the sides of an ordering; None for other formulas or if not finite."""
    tree = constraint.tree
    if not (isinstance(tree, ast.Compare) and len(tree.ops) == 1):
        return None
    if not isinstance(tree.ops[0], _ORDERS):
        return None
    left, right = (
        float(evaluate(Expression(constraint.text, side, ()), metrics))
        for side in (tree.left, tree.comparators[0])
    )
    apart = abs(left - right)
    return apart if math.isfinite(apart) else None
