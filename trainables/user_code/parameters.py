"""The hyperparameters that a loop's source reads from its configuration; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from search_spaces.errors import suggest
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.user_code.loader import parse
from trainables.user_code.syntax import function_in


@dataclass(frozen=True)
class ParameterUse:
    """How a function uses its first argument, the configuration.

    Attributes:
        place: file and line of the function.
        function: its name.
        read: names that it reads or writes.
        needed: names that it reads as `config["name"]`, without a test or a default.
        whole: whether it uses the configuration in other ways, so that it may read any name.
    """

    place: str
    function: str
    read: frozenset[str]
    needed: frozenset[str]
    whole: bool


def parameter_use(name: str) -> ParameterUse | None:
    """The use of a loop's configuration; None if its file does not define the function."""
    path, tree = parse(name)
    target = name.rpartition(":")[2]
    loop = function_in(tree, target)
    if loop is None:
        return None
    place, arguments = f"{path}:{loop.lineno}", [*loop.args.posonlyargs, *loop.args.args]
    if not arguments:
        variable = loop.args.vararg or loop.args.kwarg
        return ParameterUse(place, target, frozenset(), frozenset(), variable is not None)
    use = _Use(arguments[0].arg)
    for statement in loop.body:
        use.visit(statement)
    needed = use.subscripts - use.optional
    read = frozenset(use.subscripts | use.optional)
    return ParameterUse(place, target, read, frozenset(needed), use.whole)


def parameter_problems(name: str, spec: SweepSpec, given: set[str]) -> Iterator[Problem]:
    """Hyperparameters that a loop does not read, and those that it lacks."""
    use = parameter_use(name)
    if use is None:
        return
    for extra in sorted(given - use.read) if not use.whole else ():
        problem = f"{use.function}() ({use.place}) does not read config['{extra}']"
        section = "fixed" if extra in spec.fixed else "space"
        yield (section, extra), problem + (suggest(extra, use.read) if use.read else "")
    for lacking in sorted(use.needed - given - {"seed"}):
        problem = f"{use.place}: {use.function}() reads config['{lacking}'], which is neither in"
        first, _, rest = lacking.partition(".")
        advice = f"; a group of the space is read as config['{first}']['{rest}']" * bool(rest)
        yield ("trainable",), f"{problem} space nor in fixed{advice}"


class _Use(ast.NodeVisitor):
    """Collects the keys with which a variable is used."""

    def __init__(self, variable: str) -> None:
        self._variable = variable
        self.subscripts: set[str] = set()
        self.optional: set[str] = set()
        self.whole = False

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`config["name"]`."""
        if not self._is_config(node.value):
            self.generic_visit(node)
            return
        keys = self.subscripts if isinstance(node.ctx, ast.Load) else self.optional
        self._add(node.slice, keys)

    def visit_Call(self, node: ast.Call) -> None:
        """`config.get("name", default)`."""
        called = node.func
        if not (
            isinstance(called, ast.Attribute)
            and called.attr in ("get", "pop", "setdefault")
            and node.args
            and self._is_config(called.value)
        ):
            self.generic_visit(node)
            return
        self._add(node.args[0], self.optional)
        for argument in [*node.args[1:], *node.keywords]:
            self.visit(argument)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`"name" in config`."""
        if len(node.comparators) == 1 and self._is_config(node.comparators[0]):
            self._add(node.left, self.optional)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """The configuration as a whole, passed on or bound to something else."""
        self.whole = self.whole or self._is_config(node)

    def _is_config(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self._variable

    def _add(self, key: ast.expr, keys: set[str]) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            keys.add(key.value)
        else:  # a name that is computed
            self.whole = True
            self.visit(key)
