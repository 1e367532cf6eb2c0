"""Mistakes in a Ray Train loop that its source shows; nothing is imported."""

from __future__ import annotations

import ast

from trainables.user_code.loader import parse


def loop_problems(name: str) -> list[str]:
    """One line for each mistake in the function of a name: its signature, a call of Ray Tune."""
    path, tree = parse(name)
    target = name.rpartition(":")[2]
    loops = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == target]
    renamed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "ray.tune"
        for alias in node.names
        if alias.name == "report"
    }
    problems = []
    for loop in loops[-1:]:
        if _num_required(loop.args) > 1:
            problem = "takes more than one argument; Ray Train calls it with the configuration"
            problems.append(f"{path}:{loop.lineno}: {target}() {problem}")
        problems += [
            f"{path}:{node.lineno}: ray.tune.report has no effect in a Ray Train loop; "
            "call ray.train.report"
            for node in ast.walk(loop)
            if isinstance(node, ast.Call) and _is_tune_report(node.func, renamed)
        ]
    return problems


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


def _num_required(args: ast.arguments) -> int:
    """Number of arguments without a default."""
    positional = len(args.posonlyargs) + len(args.args) - len(args.defaults)
    return positional + sum(default is None for default in args.kw_defaults)


def _is_tune_report(called: ast.expr, renamed: set[str]) -> bool:
    """`tune.report`, `ray.tune.report`, or a name that was imported from there."""
    return ast.unparse(called) in {"tune.report", "ray.tune.report", *renamed}
