"""The hyperparameters that a loop's source reads from its configuration; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from search_spaces.errors import suggest
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.user_code import loader
from trainables.user_code.python_source.python_file import PythonFile

_GETTERS = ("get", "pop", "setdefault")


def parameter_problems(name: str, spec: SweepSpec, given: Collection[str]) -> Iterator[Problem]:
    """Hyperparameters that a loop does not read, and those that it lacks."""
    file, loop = loader.function(name)
    if loop is None:
        return
    place, call = f"{file.path}:{loop.lineno}", f"{loop.name}()"
    required, optional, reads_all = _keys_read(file, loop)
    read = required | optional
    for extra in sorted({*given} - read) if not reads_all else ():
        problem = f"{call} ({place}) does not read config['{extra}']"
        section = "fixed" if extra in spec.fixed else "space"
        yield (section, extra), problem + (suggest(extra, read) if read else "")
    for lacking in sorted(required - optional - {*given, "seed"}):
        problem = f"{place}: {call} reads config['{lacking}'], which is neither in"
        first, _, rest = lacking.partition(".")
        advice = f"; a group of the space is read as config['{first}']['{rest}']" * bool(rest)
        yield ("trainable",), f"{problem} space nor in fixed{advice}"


def _keys_read(file: PythonFile, loop: ast.FunctionDef) -> tuple[set[str], set[str], bool]:
    """Keys that a function reads from its first argument: those that it takes without a test or a
    default, and others; and whether it uses the argument in other ways, so that it may read any.
    """
    required, optional, reads_all = set[str](), set[str](), False
    arguments = [*loop.args.posonlyargs, *loop.args.args]
    if not arguments:
        return required, optional, bool(loop.args.vararg or loop.args.kwarg)
    for node in (part for statement in loop.body for part in ast.walk(statement)):
        if isinstance(node, ast.Name) and node.id == arguments[0].arg:
            key, is_required = _key_read(file, node)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                (required if is_required else optional).add(key.value)
            else:  # a name that is computed, or the configuration as a whole
                reads_all = True
    return required, optional, reads_all


def _key_read(file: PythonFile, config: ast.Name) -> tuple[ast.expr | None, bool]:
    """The key with which a mapping is read, and whether it must be there; None for none."""
    parent = file.parents[config]
    if isinstance(parent, ast.Subscript) and parent.value is config:
        return parent.slice, isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Compare) and parent.comparators == [config]:
        return parent.left, False
    call = file.parents[parent]
    is_method = isinstance(parent, ast.Attribute) and parent.attr in _GETTERS
    if is_method and isinstance(call, ast.Call) and call.func is parent and call.args:
        return call.args[0], False
    return None, False
