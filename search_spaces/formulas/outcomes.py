"""Constraints on what a trial reports (`peak_memory_gb <= 40`): by how much one is broken."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence

from search_spaces.domains.field_errors import FieldErrors
from search_spaces.expressions import (
    Expression,
    InactiveError,
    UndefinedError,
    evaluate,
    parse,
)
from search_spaces.formulas.constraints import parse_constraints

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_outcome_constraints(constraints: Sequence[str]) -> None:
    """Refuse what is no formula that is true or false of metrics.

    Raises:
        ValidationError: every mistake, each at its index.
    """
    problems = FieldErrors()
    for expression in parse_constraints(constraints, None, problems):
        if not expression.names:
            problems.add((constraints.index(expression.text),), "speaks of no metric")
    problems.raise_if_any("outcome_constraints")


def violations(constraints: Sequence[str], metrics: Mapping[str, float]) -> dict[str, float]:
    """By how much each constraint is broken: zero or less where it holds.

    The unit is that of the compared sides. A constraint that is no comparison, or of a metric that
    was never reported or is no finite number, is broken by 1.
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
    """How far apart the sides of a comparison are; None for another formula, or sides that meet."""
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
