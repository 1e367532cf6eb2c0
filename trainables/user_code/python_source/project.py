"""Finds the functions that user code calls, in its own file and in those beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trainables.runtime.source import module_files
from trainables.user_code.python_source.python_file import PythonFile, read_file

_Bound = ast.FunctionDef | ast.ClassDef | ast.Assign
Imports = dict[str, list[tuple[Path, str]]]
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
        bound: number of its first arguments that a caller does not give: `self`, or those of a
            `functools.partial`.
        owner: the class of a method.
    """

    file: PythonFile
    node: ast.FunctionDef | ast.Lambda
    bound: int = 0
    owner: ast.ClassDef | None = None

    @property
    def parameters(self) -> list[str]:
        """Names of the positional arguments that a caller gives."""
        args = self.node.args
        return [a.arg for a in (*args.posonlyargs, *args.args)][self.bound :]

    @property
    def body(self) -> list[ast.stmt]:
        """Its statements."""
        node = self.node
        if isinstance(node, ast.FunctionDef):
            return node.body
        return [ast.copy_location(ast.Return(node.body), node)]


class Project:
    """The files of user code.

    Args:
        root: the folder within which imports are the user's own.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._imports: dict[Path, Imports] = {}

    def file(self, path: Path) -> PythonFile:
        """A file; an empty one if it has a syntax error."""
        try:
            return read_file(path)
        except (SyntaxError, ValueError):
            return PythonFile(path, ast.Module([], []))

    def function(self, file: PythonFile, name: str) -> Definition | None:
        """What runs when the object that a file has under a name is called."""
        return self._resolved(file, name, "__call__")

    def called(
        self, file: PythonFile, function: ast.expr, owner: ast.ClassDef | None = None
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
            return self._resolved(file, function.id, "__init__")
        if not isinstance(function, ast.Attribute):
            return None
        for path, name in self._imported(file).get(ast.unparse(function.value), ()):
            return None if name else self._resolved(self.file(path), function.attr, "__init__")
        classes = [*([owner] if owner else []), *file.classes]
        return next((m for c in classes if (m := _method(file, c, function.attr))), None)

    def imports(self, file: PythonFile, node: ast.Import | ast.ImportFrom) -> Imports:
        """What a statement of a file imports from beside."""
        found: Imports = {}
        for alias in node.names:
            if isinstance(node, ast.Import):
                files = module_files(alias.name, self._root)
                found[alias.asname or alias.name] = [(path, "") for path in files]
                continue
            folder = file.path.parents[node.level - 1] if node.level else self._root
            inner = ".".join(filter(None, (node.module, alias.name)))
            modules, packages = (
                module_files(module, folder, relative=node.level > 0)
                for module in (inner, node.module or "__init__")
            )
            names = [(path, alias.name) for path in packages]
            found[alias.asname or alias.name] = [(path, "") for path in modules] or names
        return {name: places for name, places in found.items() if places}

    def _imported(self, file: PythonFile) -> Imports:
        if file.path not in self._imports:
            found = self._imports[file.path] = {}
            for node in file.nodes:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found |= self.imports(file, node)
        return self._imports[file.path]

    def _bound(
        self, file: PythonFile, name: str, before: int = _ANYWHERE
    ) -> tuple[PythonFile, _Bound] | None:
        """The last statement that binds a name, before a line; imports from beside are followed."""
        for node in reversed(file.statements):
            if isinstance(node, _Bound) and name in _names(node) and node.lineno < before:
                return file, node
        for path, original in self._imported(file).get(name, ()):
            follows = original and path != file.path
            return self._bound(self.file(path), original) if follows else None
        return None

    def _resolved(
        self, file: PythonFile, name: str, method: str, before: int = _ANYWHERE
    ) -> Definition | None:
        """What a call of a name runs: of a class a method, of a variable what its value is."""
        if (found := self._bound(file, name, before)) is None:
            return None
        file, node = found
        if isinstance(node, ast.FunctionDef):
            return Definition(file, node)
        if isinstance(node, ast.ClassDef):
            return _method(file, node, method)
        return self._value(file, node.value, node.lineno)

    def _value(self, file: PythonFile, value: ast.expr, line: int) -> Definition | None:
        """The function that is, or that is returned by, the value of a variable."""
        if isinstance(value, ast.Lambda):
            return Definition(file, value)
        if isinstance(value, ast.Name):
            return self._resolved(file, value.id, "__call__", line)
        if not isinstance(value, ast.Call):
            return None
        if ast.unparse(value.func).rpartition(".")[2] == "partial" and value.args:
            inner = self._value(file, value.args[0], line)
            return inner and replace(inner, bound=inner.bound + len(value.args) - 1)
        if not isinstance(value.func, ast.Name):
            return None
        made = self._bound(file, value.func.id, line)
        if made and isinstance(made[1], ast.FunctionDef):
            return _returned(made[0], made[1])
        return self._resolved(file, value.func.id, "__call__", line)


def _names(node: _Bound) -> list[str]:
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    return [node.name]


def _method(file: PythonFile, owner: ast.ClassDef, name: str) -> Definition | None:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
            return Definition(file, node, 0 if static else 1, owner)
    return None


def _returned(file: PythonFile, maker: ast.FunctionDef) -> Definition | None:
    """The function that a function makes and returns."""
    inner = {n.name: n for n in maker.body if isinstance(n, ast.FunctionDef)}
    for node in (n.value for n in maker.body if isinstance(n, ast.Return)):
        if isinstance(node, ast.Lambda):
            return Definition(file, node)
        if isinstance(node, ast.Name) and node.id in inner:
            return Definition(file, inner[node.id])
    return None


def inner_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """What runs with these nodes: they and their parts, without the functions in them."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
