"""What the source of a function or class for Ray Train or Ray Tune says; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeGuard

from trainables.user_code import loader
from trainables.user_code.offered import CONTEXT, REFUSED
from trainables.user_code.python_source.project import inner_nodes
from trainables.user_code.python_source.python_file import PythonFile

_WRAPPERS = ("ray.tune.with_parameters", "ray.tune.with_resources", "functools.partial")
_DICT = {"metrics", None}
"""Keywords by which a call of `report` gets a dict; None is that of `**`."""
_BASES = ("ray.tune.Trainable", "ray.tune.trainable.Trainable")
NO_DATASETS = (
    "get_dataset_shard() finds no data set; name, as the trainable, a function that builds the "
    "trainer with datasets={…} and calls its fit()"
)


def train_loop_problems(name: str) -> list[str]:
    """One line for each mistake in a loop for Ray Train: its signature, calls of Ray Tune."""
    file, loop = loader.function(name)
    if loop is None:
        return []
    found = [*_refused_calls("Ray Train loop", file, loop)]
    takes_one = loop.args.args or loop.args.posonlyargs or loop.args.vararg or not loop.args.kwarg
    if num_required(loop.args) > 1 or not (takes_one or loop.decorator_list):
        problem = "is called with one argument, the configuration, a dict"
        found.append((loop.lineno, f"{loop.name}() {problem}"))
    if not _calls_fit(file, loop):
        shards = [c for c in file.calls(loop) if file.name(c.func).endswith("get_dataset_shard")]
        found += [(call.lineno, NO_DATASETS) for call in shards]
    return [f"{file.path}:{line}: {problem}" for line, problem in sorted(found)]


def builds_trainer(name: str) -> bool:
    """Whether a function builds a trainer and calls its `fit()`, rather than being the loop."""
    file, function = loader.function(name)
    return function is not None and _calls_fit(file, function)


def never_reports(files: Iterable[Path]) -> bool:
    """Whether no name in these files says `report`, as those of Ray Train and its callbacks do."""
    return not any(b"report" in file.read_bytes().lower() for file in files)


def says_done(name: str) -> bool:
    """Whether the file of a class has the key `done`, also as `done=…` or Ray's `DONE`."""
    for node in loader.read(name).nodes:
        match node:
            case ast.Constant("done") | ast.keyword("done") | ast.Attribute(attr="DONE"):
                return True
            case ast.Name("DONE"):
                return True
    return False


def reads_seed(name: str) -> bool:
    """Whether the file of a loop reads `config["seed"]`, or `config.get("seed")`."""
    keys = (key for node in loader.read(name).nodes for key in _keys_read(node))
    return any(isinstance(key, ast.Constant) and key.value == "seed" for key in keys)


def num_required(args: ast.arguments) -> int:
    """Number of arguments without a default."""
    positional = len(args.posonlyargs) + len(args.args) - len(args.defaults)
    return positional + sum(default is None for default in args.kw_defaults)


def is_tune_function(name: str) -> bool:
    """Whether a function is one for Ray Tune, rather than a loop for Ray Train.

    What the function itself uses decides, then what its file uses, then whether it returns or
    yields something.
    """
    file, function = _tune_function(name)
    own = _names_used(file, function) if function else set[str]()
    if "ray.train.report" in own:
        return False
    if _uses(own, "ray.tune"):
        return True
    if _uses(own, "ray.train"):
        return False
    every = _names_used(file, file.tree) | file.imported
    tune, train = _uses(every, "ray.tune"), _uses(every, "ray.train")
    return tune if tune != train else function is not None and _has_output(function)


def tune_class_methods(name: str) -> frozenset[str] | None:
    """Methods of a class that derives from Ray Tune's `Trainable`; None if its file shows no such
    class.

    Those of its base classes in the same file are included.
    """
    file, methods, derives = loader.read(name), set[str](), False
    classes, waiting = file.classes, [name.rpartition(":")[2]]
    while waiting:
        searched = waiting.pop()
        found = [node for node in classes if node.name == searched]
        classes = [node for node in classes if node.name != searched]
        for node in found:
            methods |= {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            derives = derives or any(file.name(base) in _BASES for base in node.bases)
            waiting += map(ast.unparse, node.bases)
    return frozenset(methods) if derives else None


def tune_problems(name: str) -> list[str]:
    """One line for each mistake in a function or class for Ray Tune."""
    (file, function), found = _tune_function(name), list[tuple[int, str]]()
    if function is not None:
        is_wrapped = function.name != name.rpartition(":")[2]
        if not is_wrapped and num_required(function.args) != 1:
            problem = "is called with one argument, the configuration"
            found.append((function.lineno, f"{function.name}() {problem}"))
        found += _refused_calls("Ray Tune function", file, function)
    own, refused = tune_class_methods(name) or (), REFUSED["Ray Tune class"]
    lines = [f"{file.path}:{line}: {problem}" for line, problem in found]
    return lines + [f"{file.path}: {m}() {text}" for m, text in refused.items() if m in own]


def _refused_calls(
    kind: str, file: PythonFile, function: ast.FunctionDef
) -> Iterator[tuple[int, str]]:
    """Lines of a function with a call that is not offered, and what `tune plan` says.

    Args:
        kind: of the code, of `offered.REFUSED`.
    """
    contexts = {
        ast.unparse(part.targets[0]): CONTEXT
        for part in ast.walk(function)
        if isinstance(part, ast.Assign) and _called(file, part.value, {}) == CONTEXT
    }
    for call in file.calls(function):
        name = _called(file, call, contexts).removesuffix("()")
        if call.keywords and not call.args and not {k.arg for k in call.keywords} & _DICT:
            name = f"{name}(loss=…)" if f"{name}(loss=…)" in REFUSED[kind] else name
        if name in REFUSED[kind]:
            yield call.lineno, f"{name} {REFUSED[kind][name]}"


def _called(file: PythonFile, node: ast.expr, others: dict[str, str]) -> str:
    """`ray.tune.get_context()` of a call, also where another call follows; empty otherwise."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        return f"{_called(file, node.func.value, others)}.{node.func.attr}()"
    return f"{file.name(node.func, others)}()"


def _calls_fit(file: PythonFile, function: ast.FunctionDef) -> bool:
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "fit"
        for call in file.calls(function)
        if not call.args and not call.keywords
    )


def _keys_read(node: ast.AST) -> list[ast.expr]:
    """The key of `mapping[key]` and `mapping.get(key, …)`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.slice]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.args[:1] if node.func.attr == "get" else []
    return []


def _tune_function(name: str) -> tuple[PythonFile, ast.FunctionDef | None]:
    """The function of a name, also if that is `tune.with_parameters(function, …)`, and its file."""
    file, target = loader.read(name), name.rpartition(":")[2]
    for node in file.statements:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target:
            value = node.value
            while _is_wrapper(value, file):
                value = value.args[0]
            target = ast.unparse(value)
    return file, file.function(target)


def _is_wrapper(value: ast.expr, file: PythonFile) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call) and bool(value.args) and file.name(value.func) in _WRAPPERS


def _names_used(file: PythonFile, node: ast.AST) -> set[str]:
    """The full names that a part of a file uses or imports by `import`."""
    nodes = [*ast.walk(node)]
    found = {file.name(part) for part in nodes if isinstance(part, ast.Attribute | ast.Name)}
    return found | {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}


def _uses(names: set[str], package: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for name in names)


def _has_output(function: ast.FunctionDef) -> bool:
    """Whether a function returns or yields something."""
    nodes = inner_nodes(function.body)
    return any(isinstance(n, ast.Return | ast.Yield) and n.value is not None for n in nodes)
