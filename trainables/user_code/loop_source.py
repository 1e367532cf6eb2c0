"""Mistakes in a Ray Train loop that its source shows; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainables.user_code.loader import function_in, parse
from trainables.user_code.offered import CONTEXT, REFUSED


def loop_problems(name: str) -> list[str]:
    """One line for each mistake in the function of a name or in its file."""
    path, tree = parse(name)
    loop = function_in(tree, name.rpartition(":")[2])
    found = [*(_mistakes(loop, tree) if loop else ()), *unguarded_fits(tree)]
    return [f"{path}:{line}: {problem}" for line, problem in found]


_NO_DATASETS = (
    "get_dataset_shard() finds no data set; name, as the trainable, a function that builds the "
    "trainer with datasets={…} and calls its fit()"
)
_UNGUARDED = "calls fit() when a worker imports the file; put it under if __name__ == '__main__':"


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


def imported_names(tree: ast.Module) -> dict[str, str]:
    """The full name of everything that a file imports, by the name that it has there."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


def full_name(node: ast.expr, aliases: dict[str, str]) -> str:
    """The dotted name of an expression, with that of the package; see `imported_names`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    first = node.id if isinstance(node, ast.Name) else ""
    return ".".join([aliases.get(first, first), *parts])


def builds_trainer(name: str) -> bool:
    """Whether a function builds a trainer and calls its `fit()`, rather than being the loop."""
    function = function_in(parse(name)[1], name.rpartition(":")[2])
    return function is not None and any(map(_is_fit, _calls(function)))


def never_reports(files: Iterable[Path]) -> bool:
    """Whether no name in these files says `report`, as those of Ray Train and its callbacks do."""
    return not any(b"report" in file.read_bytes().lower() for file in files)


def unguarded_fits(tree: ast.Module) -> list[tuple[int, str]]:
    """Calls of `fit()` at the top level, without arguments, as trainers and tuners have it, or of
    a function of the file that has such a call: their lines, and the problem.
    """
    fitting = {
        f.name for f in tree.body if isinstance(f, ast.FunctionDef) and any(map(_is_fit, _calls(f)))
    }
    top = [n for n in tree.body if isinstance(n, ast.Expr | ast.Assign | ast.For | ast.With)]
    return [
        (call.lineno, _UNGUARDED)
        for statement in top
        for call in _calls(statement)
        if _is_fit(call) or (isinstance(call.func, ast.Name) and call.func.id in fitting)
    ]


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
