"""Mistakes in a Ray Train loop that its source shows; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainables.user_code.loader import parse
from trainables.user_code.offered import CONTEXT, REFUSED
from trainables.user_code.syntax import full_name, function_in, imported_names


def loop_problems(name: str) -> list[str]:
    """One line for each mistake in the function of a name."""
    path, tree = parse(name)
    loop = function_in(tree, name.rpartition(":")[2])
    found = _mistakes(loop, tree) if loop else ()
    return [f"{path}:{line}: {problem}" for line, problem in found]


_NO_DATASETS = (
    "get_dataset_shard() finds no data set; name, as the trainable, a function that builds the "
    "trainer with datasets={…} and calls its fit()"
)


def _mistakes(loop: ast.FunctionDef, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The signature, and calls of Ray Tune."""
    aliases = imported_names(tree)
    if num_required(loop.args) > 1:
        problem = "takes more than one argument; Ray Train calls it with the configuration"
        yield loop.lineno, f"{loop.name}() {problem}"
    is_driver = any(map(_is_fit, _calls(loop)))
    for node in _calls(loop):
        called = full_name(node.func, aliases)
        if not is_driver and called.endswith("get_dataset_shard"):
            yield node.lineno, _NO_DATASETS
    yield from refused_calls("Ray Train loop", loop, aliases)


def refused_calls(kind: str, node: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Lines of code with a call that is not offered, and what `tune plan` says.

    Args:
        kind: of the code, of `offered.REFUSED`.
        node: the function.
        aliases: names that its file imports.
    """
    parts = list(ast.walk(node))
    contexts = {
        ast.unparse(part.targets[0]): CONTEXT
        for part in parts
        if isinstance(part, ast.Assign) and _called(part.value, aliases) == CONTEXT
    }
    for call in (part for part in parts if isinstance(part, ast.Call)):
        name = _called(call, {**aliases, **contexts}).removesuffix("()")
        if name in REFUSED[kind]:
            yield call.lineno, f"{name} {REFUSED[kind][name]}"


def _called(node: ast.expr, aliases: dict[str, str]) -> str:
    """`ray.tune.get_context()` of a call, also where another call follows; empty otherwise."""
    if not isinstance(node, ast.Call):
        return ""
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(inner, ast.Call) and isinstance(node.func, ast.Attribute):
        return f"{_called(inner, aliases)}.{node.func.attr}()"
    return f"{full_name(node.func, aliases)}()"


def builds_trainer(name: str) -> bool:
    """Whether a function builds a trainer and calls its `fit()`, rather than being the loop."""
    function = function_in(parse(name)[1], name.rpartition(":")[2])
    return function is not None and any(map(_is_fit, _calls(function)))


def never_reports(files: Iterable[Path]) -> bool:
    """Whether no name in these files says `report`, as those of Ray Train and its callbacks do."""
    return not any(b"report" in file.read_bytes().lower() for file in files)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [found for found in ast.walk(node) if isinstance(found, ast.Call)]


def _is_fit(call: ast.Call) -> bool:
    is_fit = isinstance(call.func, ast.Attribute) and call.func.attr == "fit"
    return is_fit and not call.args and not call.keywords


def reads_seed(name: str) -> bool:
    """Whether the file of a loop reads `config["seed"]`, or `config.get("seed")`."""
    return any(
        isinstance(node, ast.Constant) and node.value == "seed"
        for parent in ast.walk(parse(name)[1])
        for node in _keys_read(parent)
    )


def _keys_read(node: ast.AST) -> list[ast.expr]:
    """The key of `mapping[key]` and `mapping.get(key, …)`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.slice]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.args[:1] if node.func.attr == "get" else []
    return []


def num_required(args: ast.arguments) -> int:
    """Number of arguments without a default."""
    positional = len(args.posonlyargs) + len(args.args) - len(args.defaults)
    return positional + sum(default is None for default in args.kw_defaults)
