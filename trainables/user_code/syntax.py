"""What the syntax tree of a file says about its names."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def top_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a file that are run when it is imported, also those under a condition."""
    waiting = [*tree.body]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.If | ast.Try | ast.With):
            waiting = [*node.body, *waiting]
        else:
            yield node


def function_in(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The function that a file defines last under a name."""
    nodes = (n for n in top_level(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    return max(nodes, key=lambda node: node.lineno, default=None)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """The full name of everything that a file imports, by the name that it has there."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """The dotted name of an expression, with that of the package; see `imported_names`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    first = node.id if isinstance(node, ast.Name) else ""
    return ".".join([aliases.get(first, first), *parts])
