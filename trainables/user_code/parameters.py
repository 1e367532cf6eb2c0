"""The hyperparameters that a loop's source reads from its configuration; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from search_spaces.errors import suggest
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.user_code import loader
from trainables.user_code.python_source.python_file import PythonFile

_GETTERS = ("get", "pop", "setdefault")
_TESTS = ("getattr", "hasattr", "isinstance")


def parameter_problems(name: str, spec: SweepSpec, given: Collection[str]) -> Iterator[Problem]:
    """Hyperparameters that a loop does not read, and those that it lacks."""
    file, loop = loader.function(name)
    if loop is None:
        return
    place, call = f"{file.path}:{loop.lineno}", f"{loop.name}()"
    if problem := _wrong_form(file, loop, given):
        yield ("trainable",), f"{place}: {call} {problem}"
        return
    required, optional, reads_all = _keys_read(file, loop)
    read = required | optional
    for extra in sorted({*given} - read) if not reads_all else ():
        problem = f"{call} ({place}) does not read config['{extra}']"
        section = "fixed" if extra in spec.fixed else "space"
        yield (section, extra), problem + (suggest(extra, read) if read else "")
    for lacking in sorted(required - optional - {*given, "seed"}):
        problem = f"{place}: {call} reads config['{lacking}'], which is neither in"
        first, _, rest = lacking.partition(".")
        advice = f"; a group of the space is read as config['{first}']['{rest}']" if rest else ""
        yield ("trainable",), f"{problem} space nor in fixed{advice}"


def _keys_read(file: PythonFile, loop: ast.FunctionDef) -> tuple[set[str], set[str], bool]:
    """Keys that a function reads from its first argument: those that it takes without a test or a
    default, and others; and whether it uses the argument in other ways, so that it may read any.
    """
    arguments = [*loop.args.posonlyargs, *loop.args.args]
    if not arguments:
        return set(), set(), bool(loop.args.vararg or loop.args.kwarg)
    found = [*keys_read(file, loop.body, arguments[0].arg)]
    required = {read.key for read in found if read.key is not None and read.is_required}
    optional = {read.key for read in found if read.key is not None and not read.is_required}
    return required, optional, any(read.key is None for read in found)


def _wrong_form(file: PythonFile, loop: ast.FunctionDef, given: Collection[str]) -> str:
    """Why a function cannot take its configuration, one dict, as its argument; empty if it can."""
    arguments = [*loop.args.posonlyargs, *loop.args.args]
    if not arguments or loop.decorator_list:
        return ""
    config, nodes = arguments[0].arg, [node for part in loop.body for node in ast.walk(part)]
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == config]
    is_other = any(isinstance(node, ast.arg) and node.arg == config for node in nodes)
    if is_other or not all(isinstance(node.ctx, ast.Load) for node in uses):
        return ""
    parents = [file.parents[node] for node in uses]
    is_dict = any(isinstance(parent, ast.Subscript | ast.Compare) for parent in parents)
    read = [p.attr for p in parents if isinstance(p, ast.Attribute)]
    if config in given and not is_dict and not any(hasattr(dict, name) for name in read):
        return f"is called with one argument, a dict; read {config} as config['{config}']"
    is_tested = any(isinstance(p, ast.Call) and ast.unparse(p.func) in _TESTS for p in parents)
    for name in read:
        if not (is_tested or hasattr(dict, name)):
            return f"reads {config}.{name}, and its argument is a dict; read {config}['{name}']"
    return ""


@dataclass(frozen=True)
class KeyRead:
    """A place where code uses its configuration.

    Attributes:
        node: the configuration there.
        key: that it reads; None for a name that is computed, or the configuration as a whole.
        is_required: whether it reads the key without a test or a default.
        default: what it takes without the key, if that is given there.
    """

    node: ast.expr
    key: str | None
    is_required: bool = False
    default: ast.expr | None = None


def keys_read(file: PythonFile, body: Sequence[ast.stmt], config: str) -> Iterator[KeyRead]:
    """The places in a function's body that use its configuration.

    Args:
        config: its name there, also `self.config`.
    """
    for node in (part for statement in body for part in ast.walk(statement)):
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) == config:
            key, is_required, default = _key_read(file, node)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield KeyRead(node, key.value, is_required, default)
            else:
                yield KeyRead(node, None)


def _key_read(file: PythonFile, config: ast.expr) -> tuple[ast.expr | None, bool, ast.expr | None]:
    """The key with which a mapping is read, or None; whether it must be there; its default."""
    parent = file.parents[config]
    if isinstance(parent, ast.Subscript) and parent.value is config:
        return parent.slice, isinstance(parent.ctx, ast.Load), None
    if isinstance(parent, ast.Compare) and parent.comparators == [config]:
        return parent.left, False, None
    call = file.parents[parent]
    is_method = isinstance(parent, ast.Attribute) and parent.attr in _GETTERS
    if is_method and isinstance(call, ast.Call) and call.func is parent and call.args:
        return call.args[0], False, next(iter(call.args[1:]), None)
    return None, False, None
