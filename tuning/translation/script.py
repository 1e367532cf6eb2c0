"""Reads Python scripts without running them, and keeps account of the calls that were read.

A value is a literal, or a name that is bound to one: once in its scope, in no branch or loop, and
changed nowhere in a way that is not understood. Everything else is `UNREAD`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from trainables.user_code.syntax import full_name, imported_names
from tuning.translation.draft import Draft

UNREAD: Any = object()
"""In place of a value that only a run of the script would show."""

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_SCOPES = _Definition | ast.Lambda | _COMPREHENSIONS | ast.Module
_BRANCHES = ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.Match
_MUTABLE = ast.Dict | ast.List | ast.Set | ast.BinOp | ast.Call | _COMPREHENSIONS
_CHANGES = {"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert"}
_CHANGES |= {"remove", "sort", "reverse"}
_SEARCH = ("ray.tune.", "ray.air.", "ray.init", "optuna.")
_KEEPS = {"print", "len", "str", "repr", "sorted", "dict", "list", "enqueue_trial", "deepcopy"}
"""Functions that change no mapping or list that they get, beside those of Ray Tune and Optuna."""
_OTHER = {"report", "get_checkpoint", "get_context", "from_directory", "TrialPruned"}
_OTHER |= {"set_verbosity", "get_logger"}
"""Functions of Ray Tune and Optuna for training code and messages."""
_SHOWN = ("optuna.visualization", "optuna.importance", "optuna.artifacts")


class Script:
    """A script, and the draft that is made of it.

    Attributes:
        at_end: called before the calls that were not read are noted.
    """

    def __init__(self, draft: Draft, tree: ast.Module) -> None:
        self.draft, self.tree, self._aliases = draft, tree, imported_names(tree)
        self._nodes = list(ast.walk(tree))
        self._parents = {c: node for node in self._nodes for c in ast.iter_child_nodes(node)}
        self._bindings: dict[tuple[ast.AST, str], list[ast.AST]] = {}
        self._seen: set[ast.AST] = set()
        self.at_end: list[Callable[[], None]] = []
        for node in self._nodes:
            for name in _names_bound(node):
                self._bindings.setdefault((self._scope(node), name), []).append(node)
                if isinstance(node, ast.Global):
                    self._bindings.setdefault((tree, name), []).append(node)

    def calls(self) -> list[ast.Call]:
        """All calls of the script, in the order of their lines."""
        found = [node for node in self._nodes if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def name(self, node: ast.expr) -> str:
        """The full name of what is called; see `full_name`."""
        return full_name(node, self._aliases)

    def read(self, node: ast.AST) -> None:
        """Say that what is in a node is translated or noted, or is not about the search."""
        self._seen.add(node)

    def note(self, node: ast.AST, text: str = "") -> None:
        """Say in a comment that a part of the script is not translated."""
        self.read(node)
        line = getattr(node, "lineno", None)
        self.draft.note(line, f"{text or ast.unparse(node)} is not translated")

    def note_unread(self) -> None:
        """Note each argument, and each call of Ray Tune or Optuna, that was not read."""
        for close in self.at_end:
            close()
        for call in self.calls():
            name = self.name(call.func)
            is_search = name.startswith(_SEARCH) and not name.startswith(_SHOWN)
            is_search = is_search and name.rpartition(".")[2] not in _OTHER
            if is_search and not self._is_read(call):
                self.note(call)

    def _is_read(self, node: ast.AST) -> bool:
        above: ast.AST | None = node
        while above is not None and above not in self._seen:
            above = self._parents.get(above)
        return above is not None

    def definition(self, node: ast.expr | None) -> _Definition | None:
        """The function or class of the script that a name stands for."""
        found = self._binding(node)[1] if isinstance(node, ast.Name) else []
        is_one = len(found) == 1 and isinstance(found[0], _Definition)
        return found[0] if is_one else None  # type: ignore[return-value]  # as is_one says

    def imported(self, node: ast.expr | None) -> str:
        """The full name of what a name is imported as; empty if it is bound in another way."""
        found = self._binding(node)[1] if isinstance(node, ast.Name) else []
        is_one = len(found) == 1 and isinstance(found[0], ast.Import | ast.ImportFrom)
        return self.name(node) if is_one and node is not None else ""

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
        """Keys and values of a mapping that a script builds; a later one replaces an earlier one.

        The key is None for a part in which keys or values are not certain.
        """
        if isinstance(node, ast.Name) and (found := self._bound(node)) is not None:
            yield from self.entries(found)
            for change in self._changes(node):
                yield from self._entries_of(change, node)
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

    def _entries_of(self, change: ast.expr, use: ast.Name) -> Iterator[tuple[str | None, ast.expr]]:
        """What `space["x"] = …` or `space.update(…)` adds to a mapping before it is used."""
        statement = self._parents[change]
        added = self._added(change, statement) if self.is_certain(statement) else None
        if added is None:
            yield None, statement.value if isinstance(statement, ast.Expr) else change
        else:
            yield from self.entries(added)

    def _added(self, change: ast.expr, statement: ast.AST) -> ast.expr | None:
        """The mapping that a statement adds to the one of a name; None if that is not certain."""
        if isinstance(change, ast.Subscript) and isinstance(statement, ast.Assign):
            added = ast.Dict([change.slice], [statement.value])
            return added if isinstance(change.value, ast.Name) else None
        if not (isinstance(change, ast.Call) and isinstance(change.func, ast.Attribute)):
            return None
        is_update = change.func.attr == "update" and isinstance(change.func.value, ast.Name)
        if not is_update or not isinstance(statement, ast.Expr):
            return None
        return ast.Call(ast.Name("dict", ast.Load()), change.args, change.keywords)

    def _scope(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.Module):
            node = self._parents[node]
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

    def _bound(self, node: ast.Name) -> ast.expr | None:
        """The expression to which a name is bound, if only to that one."""
        found = self._binding(node)[1]
        statement = self._parents[found[0]] if len(found) == 1 else None
        is_simple = isinstance(statement, ast.Assign) and found[0] in statement.targets
        if (is_simple or isinstance(statement, ast.AnnAssign)) and self.is_certain(statement):
            return statement.value  # type: ignore[union-attr,no-any-return]  # one of the two
        return None

    def is_certain(self, node: ast.AST | None) -> bool:
        """Whether a part of the script is run once when its function is."""
        while node is not None and not isinstance(node, _SCOPES):
            above = self._parents[node]
            is_tried = isinstance(above, ast.Try) and node in above.body
            if isinstance(above, _BRANCHES) and not (_is_main(above) or is_tried):
                return False
            node = above
        return isinstance(node, _Definition | ast.Module)

    def _changes(self, node: ast.Name) -> list[ast.expr]:
        """Where what a name stands for may be changed, in the order of the lines."""
        value = self._bound(node)
        if not isinstance(value, _MUTABLE):
            return []
        is_data = not isinstance(value, ast.Call) or self.name(value.func) == "dict"
        scope = self._binding(node)[0]
        names = [n for n in self._nodes if isinstance(n, ast.Name) and n.id == node.id]
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
        parent = self._parents[node]
        while isinstance(parent, ast.Subscript | ast.Attribute) and parent.value is node:
            node, parent = parent, self._parents[parent]
        if isinstance(node, ast.Subscript | ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                return node
            is_method = isinstance(parent, ast.Call) and parent.func is node
            is_change = isinstance(node, ast.Attribute) and node.attr in _CHANGES
            return parent if is_method and is_change else None  # type: ignore[return-value]
        call = self._parents[parent] if isinstance(parent, ast.keyword) else parent
        name = self.name(call.func) if isinstance(call, ast.Call) else ""
        is_kept = name.startswith(_SEARCH) or name.rpartition(".")[2] in _KEEPS
        is_given = isinstance(call, ast.Call | ast.Assign | ast.AnnAssign) and not is_kept
        return use if is_data and is_given else None


def _names_bound(node: ast.AST) -> list[str]:
    """The names that a node itself binds."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, _Definition):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return list(node.names) if isinstance(node, ast.Global | ast.Nonlocal) else []


def _is_main(statement: ast.AST) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).startswith("__name__ ==")
