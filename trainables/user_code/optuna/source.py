"""What the source of an Optuna objective says: the values and members of the trial that it uses.

Functions that get the trial as an argument belong to it. Nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainables.user_code.loader import read, root_of
from trainables.user_code.python_source.project import Definition, Project, inner_nodes
from trainables.user_code.python_source.python_file import PythonFile

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
        call: of it, and `file`, in which that is; None if it is not called.
    """

    name: str
    place: str
    argument: str | None = None
    always: bool = False
    call: ast.Call | None = None
    file: PythonFile | None = None

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
    project = Project(root_of(name))
    function = project.function(read(name), name.rpartition(":")[2])
    if function is None or not function.parameters:
        return None
    trial, found = function.parameters[0], ObjectiveSource()
    _ObjectiveReader(project, found).read(function, trial, always=True)
    found.num_values = {
        len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1
        for node in inner_nodes(function.body)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple | ast.Constant)
    }
    is_objective = trial == "trial" or any(m.suggests for m in found.members)
    return found if is_objective else None


class _ObjectiveReader:
    def __init__(self, project: Project, found: ObjectiveSource) -> None:
        self._project, self._found = project, found
        self._seen: set[ast.AST] = set()

    def read(self, function: Definition, trial: str, *, always: bool) -> None:
        """Add what a function does with its argument `trial`."""
        self._seen.add(function.node)
        parents = function.file.parents
        certain = {*_certain(function.body)} if always else set()
        for node in ast.walk(ast.Module(function.body, [])):
            if not (isinstance(node, ast.Name) and node.id == trial):
                continue
            member = parents[node]
            if isinstance(member, ast.Attribute):
                inner = parents[member]
                if member.attr == "study" and isinstance(inner, ast.Attribute):
                    member = inner
                self._add(function.file, member, f"{trial}.", certain)
            elif not self._follow(function, node, certain):
                self._found.is_passed_on = True

    def _add(
        self, file: PythonFile, member: ast.Attribute, trial: str, certain: set[ast.AST]
    ) -> None:
        name, place = ast.unparse(member).removeprefix(trial), f"{file.path.name}:{member.lineno}"
        call = file.parents[member]
        if isinstance(call, ast.Call) and call.func is member:
            found = Member(name, place, _text(call), call in certain, call, file)
        else:
            found = Member(name, place)
        self._found.members.append(found)

    def _follow(self, function: Definition, trial: ast.Name, certain: set[ast.AST]) -> bool:
        """Read the function to which a call gives the trial, if it is known."""
        parents = function.file.parents
        argument = parents[trial]
        call = parents[argument] if isinstance(argument, ast.keyword) else argument
        if not isinstance(call, ast.Call) or call.func is trial:
            return False
        if (called := self._called(function, call)) is None:
            return False
        if isinstance(argument, ast.keyword):
            args = called.node.args
            names = [a.arg for a in (*args.args, *args.kwonlyargs) if a.arg == argument.arg]
        else:
            position = call.args.index(trial)
            names = called.parameters[position : position + 1]
        for name in names if called.node not in self._seen else ():
            self.read(called, name, always=call in certain)
        return bool(names)

    def _called(self, function: Definition, call: ast.Call) -> Definition | None:
        for node in ast.walk(function.node):
            if isinstance(node, ast.FunctionDef) and ast.unparse(call.func) == node.name:
                return Definition(function.file, node)
        return self._project.called(function.file, call.func, function.owner)


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


def _text(call: ast.Call) -> str | None:
    """The text that a call has as its first argument, or as its `name`."""
    first = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "name")]
    value = first[0].value if first and isinstance(first[0], ast.Constant) else None
    return value if isinstance(value, str) else None
