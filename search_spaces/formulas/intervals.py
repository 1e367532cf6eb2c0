"""Interval arithmetic: the values that a formula can take over whole domains.

It finds the grid points and partial points that a constraint excludes whatever the other values
are. Random configurations could only suggest that.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from search_spaces.domains.domain import Domain
from search_spaces.expressions import ARITHMETIC, COMPARISONS, FUNCTIONS, Expression, dotted_name


class Unknown(Enum):
    """The type of UNKNOWN, a value of which nothing is known."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included; either may be infinite."""

    low: float
    high: float


Known = Mapping[str, Any]
"""Name to a value, an `Interval` or UNKNOWN; a name that is missing is unknown."""


def interval(domain: Domain) -> Any:
    """A domain as an `Interval`; UNKNOWN for values that are not all numbers."""
    if not domain.is_categorical:
        return Interval(domain.lower, domain.high)
    values = domain.categories
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return Interval(min(values), max(values))
    return UNKNOWN


def evaluate_range(expression: Expression, known: Known) -> Any:
    """The formula's value for all of `known`, an `Interval` that contains it, or UNKNOWN."""
    try:
        return _bound(expression.tree, known)
    except (ArithmeticError, ValueError, TypeError):
        return UNKNOWN


def left_side_range(expression: Expression, known: Known) -> Interval | None:
    """The range of a comparison's left side; None for other formulas or if it is unknown."""
    tree = expression.tree
    if not isinstance(tree, ast.Compare):
        return None
    return _as_interval(evaluate_range(Expression(expression.text, tree.left, ()), known))


def _bound(node: ast.expr, known: Known) -> Any:
    name = dotted_name(node)
    if name is not None:
        return known.get(name, UNKNOWN)
    match node:
        case ast.Constant():
            return node.value
        case ast.BinOp():
            return _arithmetic(node.op, _bound(node.left, known), _bound(node.right, known))
        case ast.Compare():
            return _compare(node, known)
        case ast.Call(func=ast.Name(id=function)):
            return _call(function, [_bound(arg, known) for arg in node.args])
    return _bound_logic(node, known)


def _bound_logic(node: ast.expr, known: Known) -> Any:
    match node:
        case ast.BoolOp():
            return _logic(node, known)
        case ast.UnaryOp(op=ast.Not()):
            value = _bound(node.operand, known)
            return UNKNOWN if _is_uncertain(value) else not value
        case ast.UnaryOp():
            sign = -1 if isinstance(node.op, ast.USub) else 1
            return _arithmetic(ast.Mult(), sign, _bound(node.operand, known))
        case ast.IfExp():
            test = _bound(node.test, known)
            if _is_uncertain(test):
                return UNKNOWN
            return _bound(node.body if test else node.orelse, known)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            values = [_bound(item, known) for item in items]
            return UNKNOWN if any(map(_is_uncertain, values)) else values
    return UNKNOWN


def _is_uncertain(value: object) -> bool:
    return value is UNKNOWN or isinstance(value, Interval)


def _as_interval(value: Any) -> Interval | None:
    if isinstance(value, (int, float)):
        return Interval(value, value)
    return value if isinstance(value, Interval) else None


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    if not (_is_uncertain(left) or _is_uncertain(right)):
        return ARITHMETIC[type(op)](left, right)
    a, b = _as_interval(left), _as_interval(right)
    if a is None or b is None:
        return UNKNOWN
    divides = isinstance(op, (ast.Div, ast.FloorDiv))
    safe_power = isinstance(op, ast.Pow) and a.low > 0
    if divides and b.low <= 0 <= b.high:
        return UNKNOWN
    if divides or safe_power or isinstance(op, (ast.Add, ast.Sub, ast.Mult)):
        corners = _at_corners(ARITHMETIC[type(op)], a, b)
        return Interval(min(corners), max(corners))
    return UNKNOWN


def _at_corners(function: Callable[[Any, Any], Any], a: Interval, b: Interval) -> list[Any]:
    """Values of a function that is monotonic in each argument: its extremes are among them."""
    return [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]


def _call(name: str, values: list[Any]) -> Any:
    if not any(map(_is_uncertain, values)):
        return FUNCTIONS[name][0](*values)
    ranges = [r for r in map(_as_interval, values) if r is not None]
    if len(ranges) < len(values):
        return UNKNOWN
    first = ranges[0]
    if name in ("min", "max"):
        pick = min if name == "min" else max
        return Interval(pick(r.low for r in ranges), pick(r.high for r in ranges))
    if len(ranges) > 1 or (name == "log" and first.low <= 0):
        return UNKNOWN
    if name == "abs":
        inside = first.low <= 0 <= first.high
        ends = [abs(first.low), abs(first.high)]
        return Interval(0 if inside else min(ends), max(ends))
    function = math.log if name == "log" else FUNCTIONS[name][0]
    return Interval(function(first.low), function(first.high))


def _logic(node: ast.BoolOp, known: Known) -> Any:
    decisive = isinstance(node.op, ast.Or)  # one true part decides `or`, one false part `and`
    values = [_bound(part, known) for part in node.values]
    if any(not _is_uncertain(v) and bool(v) is decisive for v in values):
        return decisive
    return UNKNOWN if any(map(_is_uncertain, values)) else not decisive


def _compare(node: ast.Compare, known: Known) -> Any:
    parts = [_bound(part, known) for part in (node.left, *node.comparators)]
    results = [
        _pair(op, *pair) for op, pair in zip(node.ops, itertools.pairwise(parts), strict=True)
    ]
    if any(r is False for r in results):
        return False
    return UNKNOWN if any(r is UNKNOWN for r in results) else True


def _pair(op: ast.cmpop, left: Any, right: Any) -> Any:
    if not (_is_uncertain(left) or _is_uncertain(right)):
        return bool(COMPARISONS[type(op)](left, right))
    a, b = _as_interval(left), _as_interval(right)
    if a is None or b is None:
        return UNKNOWN
    apart = a.high < b.low or b.high < a.low
    if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) or (
        apart and isinstance(op, (ast.Eq, ast.NotEq))
    ):
        outcomes = set(_at_corners(COMPARISONS[type(op)], a, b))
        return outcomes.pop() if len(outcomes) == 1 else UNKNOWN
    return UNKNOWN
