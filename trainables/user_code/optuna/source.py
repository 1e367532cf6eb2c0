"""What the source of an Optuna objective says: the values and members of the trial that it uses.

Functions that get the trial as an argument belong to it. Nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainables.user_code.definitions import Definition, Sources, inner_nodes
from trainables.user_code.loader import parse, root_of

_BRANCHES = ast.IfExp | ast.BoolOp | ast.Lambda | ast.comprehension
"""Expressions whose parts may not be evaluated."""


@dataclass(frozen=True)
class Member:
    """A member of the trial that an objective uses.

    Attributes:
        name: `suggest_float`, or `study.direction`.
        place: `file.py:12`.
        argument: its first argument if that is a text that stands there.
        always: whether each call of the objective gets there.
    """

    name: str
    place: str
    argument: str | None = None
    always: bool = False

    @property
    def suggests(self) -> bool:
        """Whether it asks for the value of a parameter."""
        return self.name.startswith("suggest_")


@dataclass
class ObjectiveSource:
    """What an objective does with its trial.

    Attributes:
        members: of the trial, in the order of the source.
        is_passed_on: whether other code gets the trial, which may use it in other ways.
        num_values: how many values each `return` gives, as far as that is known.
    """

    members: list[Member] = field(default_factory=list)
    is_passed_on: bool = False
    num_values: set[int] = field(default_factory=set)


def read_objective(name: str) -> ObjectiveSource | None:
    """The source of what a trainable's name calls; None if it takes no trial.

    It takes one if it asks its first argument for suggestions, or calls it `trial`.
    """
    sources, file = Sources(root_of(name)), parse(name)[0]
    function = sources.function(file, name.rpartition(":")[2])
    if function is None or not function.parameters:
        return None
    trial, found = function.parameters[0], ObjectiveSource()
    _Reader(sources, found).read(function, trial, always=True)
    found.num_values = {
        len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1
        for node in inner_nodes(function.body)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple | ast.Constant)
    }
    is_objective = trial == "trial" or any(m.suggests for m in found.members)
    return found if is_objective else None


class _Reader:
    def __init__(self, sources: Sources, found: ObjectiveSource) -> None:
        self._sources, self._found = sources, found
        self._seen: set[ast.AST] = set()

    def read(self, function: Definition, trial: str, *, always: bool) -> None:
        """Add what a function does with its argument `trial`."""
        self._seen.add(function.node)
        certain = {id(node) for node in _certain(function.body)} if always else set()
        nodes = list(ast.walk(ast.Module(function.body, [])))
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        known = set[int]()  # parts of members, and arguments of functions that are read
        for node in nodes:  # outer ones first
            if isinstance(node, ast.Attribute) and id(node) not in known:
                name = ast.unparse(node).removeprefix(f"{trial}.")
                if _root(node) == trial and name.count(".") == name.startswith("study."):
                    known |= set(map(id, ast.walk(node)))
                    call = calls.get(id(node))
                    place = f"{function.file.name}:{node.lineno}"
                    self._found.members.append(
                        Member(name, place, _text(call), always=id(call) in certain)
                    )
            elif isinstance(node, ast.Call):
                known |= self._follow(function, node, trial, always=id(node) in certain)
            elif isinstance(node, ast.Name) and node.id == trial and id(node) not in known:
                self._found.is_passed_on = True

    def _follow(
        self, function: Definition, call: ast.Call, trial: str, *, always: bool
    ) -> set[int]:
        """Read the function that a call gives the trial to; returns ids of such arguments."""
        positional = {i: a for i, a in enumerate(call.args) if _is_name(a, trial)}
        named = {k.arg: k.value for k in call.keywords if _is_name(k.value, trial)}
        given = {id(node) for node in (*positional.values(), *named.values())}
        called = self._called(function, call) if given else None
        if called is None:
            return set()
        every = [a.arg for a in (*called.node.args.args, *called.node.args.kwonlyargs)]
        names = [n for i, n in enumerate(called.parameters) if i in positional]
        names += [n for n in every if n in named]
        for name in names if called.node not in self._seen else ():
            self.read(called, name, always=always)
        return given if names else set()

    def _called(self, function: Definition, call: ast.Call) -> Definition | None:
        for node in ast.walk(function.node):
            if isinstance(node, ast.FunctionDef) and _is_name(call.func, node.name):
                return Definition(function.file, node)
        return self._sources.called(function.file, call.func, function.owner)


def _certain(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """What each call of a function evaluates, as far as its text shows."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _parts([item.context_expr for item in statement.items])
            yield from _certain(statement.body)
        elif isinstance(statement, ast.For):
            yield from _parts([statement.iter])
        elif not isinstance(statement, ast.If | ast.While | ast.Try | ast.Match):
            yield from _parts([statement])
        if any(isinstance(node, ast.Return | ast.Raise) for node in inner_nodes([statement])):
            return


def _parts(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, _BRANCHES | ast.FunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _root(node: ast.expr) -> str:
    """`trial` of `trial.study.direction`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _text(call: ast.Call | None) -> str | None:
    """The text that a call has as its first argument, or as its `name`."""
    first = [*(call.args[:1] if call else ()), *(_keyword(call, "name") if call else ())]
    value = first[0].value if first and isinstance(first[0], ast.Constant) else None
    return value if isinstance(value, str) else None


def _keyword(call: ast.Call, name: str) -> list[ast.expr]:
    return [k.value for k in call.keywords if k.arg == name]


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
