"""Constraints on reported metrics (`peak_memory_gb <= 40`), and the size of a violation."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence

from search_spaces.domains.field_errors import FieldErrors
from search_spaces.expressions import Expression, parse
from search_spaces.formulas.constraints import parse_constraints
from search_spaces.formulas.evaluation import InactiveError, UndefinedError, evaluate
from search_spaces.limits import limit

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
