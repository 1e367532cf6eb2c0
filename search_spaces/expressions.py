"""Formulas in a sweep file: parsed into Python's syntax tree, in which only arithmetic on names is
allowed. `formulas.evaluation` evaluates them node by node; nothing is passed to `eval`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from search_spaces.nested import show

MAX_LENGTH, MAX_DEPTH = 500, 40
MAX_BITS, MAX_DIGITS, MAX_ITEMS = 4096, 400, 1000
"""The largest whole number (bits), `round` to at most this many digits, and the longest text or
list that a formula may use. A formula with more has no value.
"""


def bounded(value: Any) -> Any:
    """The value of a parameter or an operation, unless computing with it could take long.

    Raises:
        ArithmeticError: a whole number, a text or a list is too large.
    """
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ArithmeticError(f"a whole number of more than {MAX_BITS} bits")
    if isinstance(value, (str, list, tuple, dict)) and len(value) > MAX_ITEMS:
        raise ArithmeticError(f"a text or list of more than {MAX_ITEMS} items")
    return value


def _power(base: Any, exponent: Any) -> Any:
    """`**`; in floats where the integer result would take too much memory."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(exponent) * int(base).bit_length() > MAX_BITS:
        base = float(base)
    result = base**exponent
    if isinstance(result, complex):
        raise ArithmeticError("a root of a negative number")
    return result


def _round(value: Any, digits: Any = None) -> Any:
    if digits is not None and abs(digits) > MAX_DIGITS:
        raise ArithmeticError(f"round to more than {MAX_DIGITS} digits")
    return round(value, digits)


def _compute(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    return bounded(operation(bounded(left), bounded(right)))


ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: partial(_compute, operator.add),
    ast.Sub: partial(_compute, operator.sub),
    ast.Mult: partial(_compute, operator.mul),
    ast.Div: partial(_compute, operator.truediv),
    ast.FloorDiv: partial(_compute, operator.floordiv),
    ast.Mod: partial(_compute, operator.mod),
    ast.Pow: partial(_compute, _power),
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[int, int]]] = {
    "min": (min, (1, 9)),
    "max": (max, (1, 9)),
    "abs": (abs, (1, 1)),
    "ceil": (math.ceil, (1, 1)),
    "floor": (math.floor, (1, 1)),
    "round": (_round, (1, 2)),
    "log": (math.log, (1, 2)),
}
"""Name to function, and its least and greatest number of arguments."""
QUOTES = ("param", "metric")
"""`param("a-b")` and `metric("a/b")` name what is no Python name."""
_ALLOWED = "a formula has numbers, text, parameters' names, + - * / // % **, comparisons, and, or"
_REST = f"not, in, if-else and {', '.join(FUNCTIONS)}"


@dataclass(frozen=True)
class Expression:
    """A parsed formula. Two formulas are equal if their texts are.

    Attributes:
        text: as written in the file.
        tree: syntax tree; holds allowed nodes only.
        names: dotted names of the parameters or metrics in the formula, in order.
    """

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    names: tuple[str, ...] = field(compare=False)

    @property
    def operations(self) -> int:
        """Number of values and operations, which bounds the time of an evaluation."""
        return sum(isinstance(node, ast.expr) for node in ast.walk(self.tree))


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Parse a formula.

    Raises:
        ValueError: the text is not a valid formula; the message says why.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a formula has at most {MAX_LENGTH} characters, got {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"not a formula: {show(text.strip())}") from None
    names = tuple(dict.fromkeys(_check(tree, 0)))
    return Expression(text.strip(), tree, names)


def dotted_name(node: ast.expr) -> str | None:
    """What a node names, by `a.b`, `param("a-b")` or `metric("a/b")`; None for other nodes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        parent = dotted_name(node.value)
        return parent and f"{parent}.{node.attr}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in QUOTES:
        given = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if len(given) == len(node.args) == 1 and isinstance(given[0], str) and not node.keywords:
            return given[0]
    return None


def _check(node: ast.expr, depth: int) -> Iterator[str]:
    """Yield the names in a tree; refuse every node that is not allowed."""
    if depth > MAX_DEPTH:
        raise ValueError("the formula is nested too deeply")
    name = dotted_name(node)
    if name is not None:
        yield name
        return
    if isinstance(node, ast.Call):
        _check_call(node)
    elif not _is_allowed(node):
        raise ValueError(f"{show(ast.unparse(node))} is not allowed: {_ALLOWED}, {_REST}")
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            yield from _check(child, depth + 1)


def _is_allowed(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return value is None or isinstance(value, (bool, int, float, str))
        case ast.BinOp(op=op):
            return type(op) in ARITHMETIC
        case ast.UnaryOp(op=op):
            return isinstance(op, (ast.USub, ast.UAdd, ast.Not))
        case ast.Compare(ops=ops):
            return all(type(op) in COMPARISONS for op in ops)
    return isinstance(node, (ast.BoolOp, ast.IfExp, ast.List, ast.Tuple))


def _check_call(node: ast.Call) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {show(name)} (valid: {', '.join(FUNCTIONS)})")
    least, most = FUNCTIONS[name][1]
    if node.keywords or not least <= len(node.args) <= most:
        raise ValueError(f"{name} takes {least} to {most} values, got {show(ast.unparse(node))}")
