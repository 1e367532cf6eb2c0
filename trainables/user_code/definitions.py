"""Finds the functions that user code calls, in its own file and in those beside it.

Files are parsed, never imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainables.runtime.source import module_files
from trainables.user_code.syntax import top_level

Bound = ast.FunctionDef | ast.ClassDef | ast.Assign
Imported = dict[str, list[tuple[Path, str]]]
"""Names that are imported from beside: the file of each, and its name there; an empty one for the
module itself.
"""
_ANYWHERE = 2**31


@dataclass(frozen=True)
class Definition:
    """A function, a method or a lambda.

    Attributes:
        file: that defines it.
        node: its source.
        given: number of its first arguments that a caller does not give: `self`, or those of a
            `functools.partial`.
        owner: the class of a method.
    """

    file: Path
    node: ast.FunctionDef | ast.Lambda
    given: int = 0
    owner: ast.ClassDef | None = None

    @property
    def parameters(self) -> list[str]:
        """Names of the positional arguments that a caller gives."""
        args = self.node.args
        return [a.arg for a in (*args.posonlyargs, *args.args)][self.given :]

    @property
    def body(self) -> list[ast.stmt]:
        """Its statements."""
        node = self.node
        if isinstance(node, ast.FunctionDef):
            return node.body
        return [ast.copy_location(ast.Return(node.body), node)]


class Sources:
    """The parsed files of user code.

    Args:
        root: the folder within which imports are the user's own.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees: dict[Path, ast.Module] = {}
        self._imports: dict[Path, Imported] = {}

    def tree(self, file: Path) -> ast.Module:
        """The syntax tree of a file; an empty one if it has a syntax error."""
        if file not in self._trees:
            try:
                self._trees[file] = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError):
                self._trees[file] = ast.Module([], [])
        return self._trees[file]

    def function(self, file: Path, name: str) -> Definition | None:
        """What runs when the object that a file has under a name is called."""
        return self._runs(*found, "__call__") if (found := self._bound(file, name)) else None

    def called(
        self, file: Path, function: ast.expr, owner: ast.ClassDef | None = None
    ) -> Definition | None:
        """What runs at a call in a file; of a class, its `__init__`.

        A method of an object is found by its name: in the caller's class, then in those of the
        file.

        Args:
            file: of the call.
            function: what is called.
            owner: the class of the method that calls it.
        """
        if isinstance(function, ast.Name):
            found = self._bound(file, function.id)
            return self._runs(*found, "__init__") if found else None
        if not isinstance(function, ast.Attribute):
            return None
        for path, name in self._imported(file).get(ast.unparse(function.value), ()):
            found = None if name else self._bound(path, function.attr)
            return self._runs(*found, "__init__") if found else None
        own = [n for n in top_level(self.tree(file)) if isinstance(n, ast.ClassDef)]
        methods = (_method(file, c, function.attr) for c in ([owner] if owner else []) + own)
        return next((m for m in methods if m), None)

    def imports(self, file: Path, node: ast.Import | ast.ImportFrom) -> Imported:
        """What a statement of a file imports from beside."""
        found: Imported = {}
        for alias in node.names:
            if isinstance(node, ast.Import):
                files = module_files(alias.name, self._root)
                found[alias.asname or alias.name] = [(path, "") for path in files]
                continue
            folder = file.parents[node.level - 1] if node.level else self._root
            inner = ".".join(filter(None, (node.module, alias.name)))
            modules, packages = (
                module_files(module, folder, relative=node.level > 0)
                for module in (inner, node.module or "__init__")
            )
            names = [(path, alias.name) for path in packages]
            found[alias.asname or alias.name] = [(path, "") for path in modules] or names
        return {name: places for name, places in found.items() if places}

    def _imported(self, file: Path) -> Imported:
        if file not in self._imports:
            self._imports[file] = {}
            for node in ast.walk(self.tree(file)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    self._imports[file] |= self.imports(file, node)
        return self._imports[file]

    def _bound(self, file: Path, name: str, before: int = _ANYWHERE) -> tuple[Path, Bound] | None:
        """The last statement that binds a name, before a line; imports from beside are followed."""
        found = [
            node
            for node in top_level(self.tree(file))
            if isinstance(node, Bound) and name in _names(node) and node.lineno < before
        ]
        if found:
            return file, found[-1]
        for path, original in self._imported(file).get(name, ()):
            return self._bound(path, original) if original and path != file else None
        return None

    def _runs(self, file: Path, node: Bound, method: str) -> Definition | None:
        """What a call runs: of a class a method, of a variable what its value is."""
        if isinstance(node, ast.FunctionDef):
            return Definition(file, node)
        if isinstance(node, ast.ClassDef):
            return _method(file, node, method)
        return self._value(file, node.value, node.lineno)

    def _value(self, file: Path, value: ast.expr, line: int) -> Definition | None:
        """The function that is, or that is returned by, the value of a variable."""
        if isinstance(value, ast.Lambda):
            return Definition(file, value)
        if isinstance(value, ast.Name):
            found = self._bound(file, value.id, line)
            return self._runs(*found, "__call__") if found else None
        if not isinstance(value, ast.Call):
            return None
        if ast.unparse(value.func).rpartition(".")[2] == "partial" and value.args:
            inner = self._value(file, value.args[0], line)
            return inner and replace(inner, given=inner.given + len(value.args) - 1)
        made = self._bound(file, value.func.id, line) if isinstance(value.func, ast.Name) else None
        if made and isinstance(made[1], ast.FunctionDef):
            return _returned(made[0], made[1])
        return self._runs(*made, "__call__") if made else None


def _names(node: Bound) -> list[str]:
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    return [node.name]


def _method(file: Path, owner: ast.ClassDef, name: str) -> Definition | None:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
            return Definition(file, node, 0 if static else 1, owner)
    return None


def _returned(file: Path, maker: ast.FunctionDef) -> Definition | None:
    """The function that a function makes and returns."""
    inner = {n.name: n for n in maker.body if isinstance(n, ast.FunctionDef)}
    for node in (n.value for n in maker.body if isinstance(n, ast.Return)):
        if isinstance(node, ast.Lambda):
            return Definition(file, node)
        if isinstance(node, ast.Name) and node.id in inner:
            return Definition(file, inner[node.id])
    return None


def inner_nodes(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What runs with these nodes: they and their parts, without the functions in them."""
    waiting: list[ast.AST] = list(nodes)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
