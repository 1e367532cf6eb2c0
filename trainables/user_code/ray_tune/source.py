"""Recognizes functions and classes written for Ray Tune by their source; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from trainables.user_code.loader import parse
from trainables.user_code.offered import REFUSED
from trainables.user_code.ray_train.source import builds_trainer, num_required, refused_calls
from trainables.user_code.syntax import full_name, function_in, imported_names, top_level

_WRAPPERS = ("ray.tune.with_parameters", "ray.tune.with_resources")
_BASES = ("ray.tune.Trainable", "ray.tune.trainable.Trainable")


def is_tune_function(name: str) -> bool:
    """Whether a function is one for Ray Tune, rather than a loop for Ray Train.

    What the function itself uses decides, then what its file uses, then whether it returns or
    yields something.
    """
    function, tree = _function(name)
    if function is None or builds_trainer(name):
        return False
    own, file = _ray_names(function, tree), _ray_names(tree, tree)
    if "ray.train.report" in own:
        return False
    if _uses(own, "ray.tune"):
        return True
    if _uses(own, "ray.train"):
        return False
    tune, train = _uses(file, "ray.tune"), _uses(file, "ray.train")
    return tune if tune != train else any(_outputs(function.body))


def tune_class_methods(name: str) -> frozenset[str] | None:
    """Methods of a class that derives from Ray Tune's `Trainable`; None if its file shows no such
    class.

    Those of its base classes in the same file are included.
    """
    _, tree = parse(name)
    classes = [node for node in top_level(tree) if isinstance(node, ast.ClassDef)]
    aliases, methods = imported_names(tree), set[str]()
    waiting, derives = [name.rpartition(":")[2]], False
    while waiting:
        searched = waiting.pop()
        found = [node for node in classes if node.name == searched]
        classes = [node for node in classes if node.name != searched]
        for node in found:
            methods |= {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            derives = derives or any(full_name(base, aliases) in _BASES for base in node.bases)
            waiting += map(ast.unparse, node.bases)
    return frozenset(methods) if derives else None


def function_problems(name: str) -> list[str]:
    """One line for each mistake in a function or class for Ray Tune."""
    path, _ = parse(name)
    function, tree = _function(name)
    wrapped = function is not None and function.name != name.rpartition(":")[2]
    found: list[tuple[int, str]] = []
    if function is not None and not wrapped and num_required(function.args) != 1:
        problem = "is called with one argument, the configuration"
        found.append((function.lineno, f"{function.name}() {problem}"))
    if function is not None:
        found += refused_calls("Ray Tune function", function, imported_names(tree))
    own, refused = tune_class_methods(name) or (), REFUSED["Ray Tune class"]
    methods = [f"{path}: {method}() {text}" for method, text in refused.items() if method in own]
    return [*(f"{path}:{line}: {problem}" for line, problem in found), *methods]


def _function(name: str) -> tuple[ast.FunctionDef | None, ast.Module]:
    """The function of a name, also if that is `tune.with_parameters(function, …)`, and its file."""
    _, tree = parse(name)
    target, aliases = name.rpartition(":")[2], imported_names(tree)
    for node in top_level(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target:
            value = node.value
            while _is_wrapper(value, aliases):
                value = value.args[0]
            target = ast.unparse(value)
    return function_in(tree, target), tree


def _is_wrapper(value: ast.expr, aliases: dict[str, str]) -> TypeGuard[ast.Call]:
    if not isinstance(value, ast.Call) or not value.args:
        return False
    return full_name(value.func, aliases) in _WRAPPERS


def _ray_names(node: ast.AST, tree: ast.Module) -> set[str]:
    """The full names of Ray that a part of a file uses; for the whole file also those that it
    imports.
    """
    aliases = imported_names(tree)
    parts = [n for n in ast.walk(node) if isinstance(n, ast.Attribute | ast.Name)]
    found = {full_name(part, aliases) for part in parts}
    imports = [a.name for n in ast.walk(node) if isinstance(n, ast.Import) for a in n.names]
    return {*found, *imports, *(aliases.values() if node is tree else ())}


def _uses(names: set[str], package: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for name in names)


def _outputs(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """What a function returns or yields, without the functions within it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
