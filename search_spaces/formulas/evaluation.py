"""Computes formulas: of values, or by interval arithmetic of everything that values can be.

Interval arithmetic finds the grid points and partial points that a constraint excludes whatever the
other values are. Random configurations could only suggest that.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from search_spaces.domains.domain import Domain
from search_spaces.expressions import (
    ARITHMETIC,
    COMPARISONS,
    FUNCTIONS,
    Expression,
    bounded,
    dotted_name,
)
from search_spaces.nested import show


class InactiveError(Exception):
    """The formula needs a parameter that this configuration does not have."""


class UndefinedError(Exception):
    """The formula has no value here, for example because it divides by zero."""


class Unknown(Enum):
    """The type of UNKNOWN, a value of which nothing is known."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included; either may be infinite."""

    low: float
    high: float


Lookup = Callable[[str], Any]
"""A name to its value, which may be an `Interval` or UNKNOWN."""


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Compute a formula; `and`, `or` and `if` evaluate only what Python would.

    Raises:
        InactiveError: it needs a name that `values` lacks.
        UndefinedError: it has no value there (division by zero, overflow).
        TypeError: an operand is not a number.
    """
    try:
        return _value(expression.tree, values.__getitem__)
    except KeyError as e:
        raise InactiveError(*e.args) from None
    except (ArithmeticError, ValueError) as e:
        raise UndefinedError(f"{expression.text}: {e}") from e


def evaluate_range(expression: Expression, known: Mapping[str, Any]) -> Any:
    """The formula's value for all of `known`, an `Interval` that contains it, or UNKNOWN.

    Args:
        known: name to a value, an `Interval` or UNKNOWN; a name that is missing is unknown.
    """
    try:
        return _value(expression.tree, lambda name: known.get(name, UNKNOWN))
    except (ArithmeticError, ValueError, TypeError):
        return UNKNOWN


def interval(domain: Domain) -> Any:
    """A domain as an `Interval`; UNKNOWN for values that are not all numbers."""
    if not domain.is_categorical:
        return Interval(domain.lower, domain.high)
    values = domain.categories
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return Interval(min(values), max(values))
    return UNKNOWN


def left_side_range(expression: Expression, known: Mapping[str, Any]) -> Interval | None:
    """The range of a comparison's left side; None for other formulas or if it is unknown."""
    tree = expression.tree
    if not isinstance(tree, ast.Compare):
        return None
    return _as_interval(evaluate_range(Expression(expression.text, tree.left, ()), known))


def _value(node: ast.expr, lookup: Lookup) -> Any:
    name = dotted_name(node)
    if name is not None:
        return bounded(lookup(name))
    match node:
        case ast.Constant():
            return node.value
        case ast.BinOp():
            left, right = (_number(_value(side, lookup)) for side in (node.left, node.right))
            return _arithmetic(node.op, left, right)
        case ast.Call(func=ast.Name(id=function)):
            return _call(function, [_number(_value(arg, lookup)) for arg in node.args])
        case ast.IfExp():
            test = _value(node.test, lookup)
            return _value(node.body if test else node.orelse, lookup) if _is_certain(test) else test
        case ast.List(elts=items) | ast.Tuple(elts=items):
            values = [_value(item, lookup) for item in items]
            return values if all(map(_is_certain, values)) else UNKNOWN
    return _truth(node, lookup)


def _truth(node: ast.expr, lookup: Lookup) -> Any:
    match node:
        case ast.BoolOp():
            return _logic(node, lookup)
        case ast.Compare():
            return _compare(node, lookup)
        case ast.UnaryOp(op=ast.Not()):
            value = _value(node.operand, lookup)
            return not value if _is_certain(value) else UNKNOWN
        case ast.UnaryOp():
            sign = -1 if isinstance(node.op, ast.USub) else 1
            return _arithmetic(ast.Mult(), sign, _number(_value(node.operand, lookup)))
    raise AssertionError(f"checked when parsed: {ast.dump(node)}")


def _number(value: Any) -> Any:
    if isinstance(value, (int, float)) or not _is_certain(value):
        return value
    raise TypeError(f"{show(value)} is not a number")


def _is_certain(value: object) -> bool:
    return value is not UNKNOWN and not isinstance(value, Interval)


def _as_interval(value: Any) -> Interval | None:
    if isinstance(value, (int, float)):
        return Interval(value, value)
    return value if isinstance(value, Interval) else None


def _arithmetic(op: ast.operator, left: Any, right: Any) -> Any:
    if _is_certain(left) and _is_certain(right):
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
    if all(map(_is_certain, values)):
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


def _logic(node: ast.BoolOp, lookup: Lookup) -> Any:
    decisive = isinstance(node.op, ast.Or)  # one true part decides `or`, one false part `and`
    result: Any = not decisive
    for part in node.values:
        value = _value(part, lookup)
        if not _is_certain(value):
            result = UNKNOWN
        elif bool(value) is decisive:
            return decisive
    return result


def _compare(node: ast.Compare, lookup: Lookup) -> Any:
    left, result = _value(node.left, lookup), True
    for op, side in zip(node.ops, node.comparators, strict=True):
        right = _value(side, lookup)
        if (found := _pair(op, left, right)) is False:
            return False
        left, result = right, UNKNOWN if found is UNKNOWN else result
    return result


def _pair(op: ast.cmpop, left: Any, right: Any) -> Any:
    if _is_certain(left) and _is_certain(right):
        try:
            return bool(COMPARISONS[type(op)](left, right))
        except TypeError:
            text = f"{show(left)} cannot be compared with {show(right)}"
            raise TypeError(text) from None
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
