"""What the source of a Python file says: its names by scope, what it defines, calls and holds.

A value is a literal, or a name that is bound to one: once in its scope, in no branch or loop, and
changed nowhere in a way that is not understood. Everything else is `UNREAD`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

UNREAD: Any = object()
"""In place of a value that only a run of the file would show."""

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SCOPES = _Definition | ast.Lambda | _COMPREHENSIONS | ast.Module
_BRANCHES = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match
_MUTABLE = ast.Dict | ast.List | ast.Set | ast.BinOp | ast.Call | _COMPREHENSIONS
_CHANGES = {"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert"}
_CHANGES |= {"remove", "sort", "reverse"}
_KEEPS = {"print", "len", "str", "repr", "sorted", "dict", "list", "enqueue_trial", "deepcopy"}
SEARCH = ("ray.tune.", "ray.air.", "ray.init", "optuna.")
"""Beginnings of the names of functions that search; as those above, they change no argument."""


class PythonFile:
    """A file and its syntax tree.

    Attributes:
        nodes: all parts of the tree, outer ones first.
        parents: of each part the one around it.
        imported: full names of what it imports from elsewhere.
    """

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path, self.tree = path, tree
        self.nodes = list(ast.walk(tree))
        self.parents = {c: node for node in self.nodes for c in ast.iter_child_nodes(node)}
        self.imported: set[str] = set()
        self._aliases: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                self.imported |= {alias.name for alias in node.names}
                self._aliases |= {a.asname: a.name for a in node.names if a.asname}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
                self.imported |= {*found.values()}
                self._aliases |= found

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """What is run when the file is imported, also under a condition."""
        waiting, found = [*self.tree.body], list[ast.stmt]()
        while waiting:
            node = waiting.pop(0)
            if isinstance(node, ast.If | ast.Try | ast.With):
                waiting = [*node.body, *waiting]
            else:
                found.append(node)
        return found

    @property
    def names(self) -> set[str]:
        """The names that a worker can import from it."""
        found = self._bindings.items()
        return {
            name
            for (scope, name), nodes in found
            if scope is self.tree and not any(isinstance(n, ast.AsyncFunctionDef) for n in nodes)
        }

    @property
    def classes(self) -> list[ast.ClassDef]:
        """The classes that it defines."""
        return [node for node in self.statements if isinstance(node, ast.ClassDef)]

    def function(self, name: str) -> ast.FunctionDef | None:
        """The function that it defines last under a name."""
        functions = (n for n in self.statements if isinstance(n, ast.FunctionDef))
        return next((n for n in [*functions][::-1] if n.name == name), None)

    def calls(self, within: ast.AST | None = None) -> list[ast.Call]:
        """All calls, or those in a part, in the order of their lines."""
        nodes = self.nodes if within is None else ast.walk(within)
        found = [node for node in nodes if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def name(self, node: ast.expr, others: Mapping[str, str] | None = None) -> str:
        """The dotted name of an expression, with that of its package.

        Args:
            others: full names of other names than imported ones.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        first = node.id if isinstance(node, ast.Name) else ""
        return ".".join([({**self._aliases, **(others or {})}).get(first, first), *parts])

    def definition(self, node: ast.expr | None) -> _Definition | None:
        """The function or class of the file that a name stands for."""
        found = self._only_binding(node)
        return found if isinstance(found, _Definition) else None

    def import_of(self, node: ast.expr | None) -> str:
        """The full name of what a name is imported as; empty if it is bound in another way."""
        found = self._only_binding(node)
        return self.name(node) if node and isinstance(found, ast.Import | ast.ImportFrom) else ""

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for; the name itself if that is not certain."""
        while isinstance(node, ast.Name):
            found = self._bound(node)
            if found is None or self._changes(node):
                return node
            node = found
        return node

    def literal(self, node: ast.expr | None) -> Any:
        """The plain value of an expression; `UNREAD` if it has to be computed."""
        node = self.value(node)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.literal(item) for item in node.elts]
            is_read = not any(item is UNREAD for item in items)
            return (items if isinstance(node, ast.List) else tuple(items)) if is_read else UNREAD
        if isinstance(node, ast.Dict):
            pairs = {key: self.literal(part) for key, part in self.entries(node)}
            is_read = None not in pairs and not any(part is UNREAD for part in pairs.values())
            return pairs if is_read else UNREAD
        try:
            value = UNREAD if node is None else ast.literal_eval(node)
        except (ValueError, TypeError):
            return UNREAD
        return value if value is None or isinstance(value, bool | int | float | str) else UNREAD

    def entries(self, node: ast.expr | None) -> Iterator[tuple[str | None, ast.expr]]:
        """Keys and values of a mapping that the file builds; a later one replaces an earlier one.

        The key is None for a part in which keys or values are not certain.
        """
        if isinstance(node, ast.Name) and (found := self._bound(node)) is not None:
            yield from self.entries(found)
            for change in self._changes(node):
                statement = self.parents[change]
                added = _added(change, statement) if self.is_certain(statement) else None
                whole = statement.value if isinstance(statement, ast.Expr) else change
                yield from [(None, whole)] if added is None else self.entries(added)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                name = self.literal(key)
                pair = (name, value) if isinstance(name, str) else (None, key or value)
                yield from self.entries(value) if key is None else [pair]
        elif isinstance(node, ast.Call) and self.name(node.func) == "dict":
            for part in [*node.args, *(k.value for k in node.keywords if k.arg is None)]:
                yield from self.entries(part)
            yield from ((k.arg, k.value) for k in node.keywords if k.arg is not None)
        elif node is not None:
            yield None, node

    @cached_property
    def _bindings(self) -> dict[tuple[ast.AST, str], list[ast.AST]]:
        """Where each name of each scope is bound."""
        found: dict[tuple[ast.AST, str], list[ast.AST]] = {}
        for node in self.nodes:
            for name in _names_bound(node):
                found.setdefault((self._scope(node), name), []).append(node)
                if isinstance(node, ast.Global):
                    found.setdefault((self.tree, name), []).append(node)
        return found

    def _scope(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.Module):
            node = self.parents[node]
            if isinstance(node, _SCOPES):
                break
        return node

    def _binding(self, node: ast.Name) -> tuple[ast.AST, list[ast.AST]]:
        """The scope to which a name belongs, and where it is bound there."""
        here = scope = self._scope(node)
        while not isinstance(scope, ast.Module):
            hides = scope is here or not isinstance(scope, ast.ClassDef)
            if hides and (scope, node.id) in self._bindings:
                break
            scope = self._scope(scope)
        return scope, self._bindings.get((scope, node.id), [])

    def _only_binding(self, node: ast.expr | None) -> ast.AST | None:
        """Where a name is bound, if only there."""
        found = self._binding(node)[1] if isinstance(node, ast.Name) else []
        return found[0] if len(found) == 1 else None

    def _bound(self, node: ast.Name) -> ast.expr | None:
        """The expression to which a name is bound, if only to that one."""
        found = self._only_binding(node)
        statement = self.parents[found] if found else None
        is_simple = isinstance(statement, ast.Assign) and found in statement.targets
        if (is_simple or isinstance(statement, ast.AnnAssign)) and self.is_certain(statement):
            return statement.value  # type: ignore[union-attr,no-any-return]  # one of the two
        return None

    def is_certain(self, node: ast.AST | None) -> bool:
        """Whether a part of the file is run once when its function is."""
        while node is not None and not isinstance(node, _SCOPES):
            above = self.parents[node]
            is_tried = isinstance(above, ast.Try) and node in above.body
            if isinstance(above, _BRANCHES) and not (_is_main(above) or is_tried):
                return False
            node = above
        return isinstance(node, _Definition | ast.Module)

    def _changes(self, node: ast.Name) -> list[ast.expr]:
        """Where what a name stands for may be changed before it is used, by line."""
        value = self._bound(node)
        if not isinstance(value, _MUTABLE):
            return []
        is_data = not isinstance(value, ast.Call) or self.name(value.func) == "dict"
        scope = self._binding(node)[0]
        names = [n for n in self.nodes if isinstance(n, ast.Name) and n.id == node.id]
        uses = [n for n in names if n is not node and self._binding(n)[0] is scope]
        uses = [use for use in uses if isinstance(use.ctx, ast.Load)]
        found = [change for use in uses if (change := self._change(use, is_data)) is not None]
        found = [change for change in found if not self._is_after(change, node)]
        return sorted(found, key=lambda change: change.lineno)

    def _is_after(self, change: ast.expr, use: ast.Name) -> bool:
        is_same = self._scope(change) is self._scope(use)
        return is_same and change.lineno > use.lineno and self.is_certain(use)

    def _change(self, use: ast.Name, is_data: bool) -> ast.expr | None:
        node: ast.expr = use
        parent = self.parents[node]
        while isinstance(parent, ast.Subscript | ast.Attribute) and parent.value is node:
            node, parent = parent, self.parents[parent]
        if isinstance(node, ast.Subscript | ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                return node
            is_method = isinstance(parent, ast.Call) and parent.func is node
            is_change = isinstance(node, ast.Attribute) and node.attr in _CHANGES
            return parent if is_method and is_change else None  # type: ignore[return-value]
        call = self.parents[parent] if isinstance(parent, ast.keyword) else parent
        name = self.name(call.func) if isinstance(call, ast.Call) else ""
        is_kept = name.startswith(SEARCH) or name.rpartition(".")[2] in _KEEPS
        is_given = isinstance(call, ast.Call | ast.Assign | ast.AnnAssign) and not is_kept
        return use if is_data and is_given else None


def read_file(path: Path) -> PythonFile:
    """Parse a file, once for each content.

    Raises:
        SyntaxError, ValueError: it is not Python, or that of another version.
    """
    return _parsed(path, path.read_bytes())


@lru_cache(64)
def _parsed(path: Path, content: bytes) -> PythonFile:
    return PythonFile(path, ast.parse(content, filename=str(path)))


def _added(change: ast.expr, statement: ast.AST) -> ast.expr | None:
    """The mapping that `space["x"] = …` or `space.update(…)` adds; None if that is not certain."""
    if isinstance(change, ast.Subscript) and isinstance(statement, ast.Assign):
        added = ast.Dict([change.slice], [statement.value])
        return added if isinstance(change.value, ast.Name) else None
    if not (isinstance(change, ast.Call) and isinstance(change.func, ast.Attribute)):
        return None
    is_update = change.func.attr == "update" and isinstance(change.func.value, ast.Name)
    if not is_update or not isinstance(statement, ast.Expr):
        return None
    return ast.Call(ast.Name("dict", ast.Load()), change.args, change.keywords)


def _names_bound(node: ast.AST) -> list[str]:
    """The names that a node itself binds."""
    match node:
        case ast.Name():
            return [] if isinstance(node.ctx, ast.Load) else [node.id]
        case ast.arg():
            return [node.arg]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return [node.name] if node.name else []
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        case ast.Global() | ast.Nonlocal():
            return list(node.names)
    return []


def _is_main(statement: ast.AST) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).startswith("__name__ ==")
