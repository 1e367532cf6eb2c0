"""Finds searches and trainings that begin when a user's file is imported.

Every process that runs trials imports it, and so does `tune init`. The files are only parsed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainables.user_code.python_source.project import Project, inner_nodes
from trainables.user_code.python_source.python_file import PythonFile

_FUNCTIONS = re.compile(
    r"ray\.tune\.run(_experiments)?|wandb\.agent|hyperopt\.fmin|skopt\.\w+_minimize|tuning\.run"
)
_METHODS = {
    "fit": re.compile(r".*(Trainer|Tuner|SearchCV)"),
    "train": re.compile(r".*Trainer"),
    "search": re.compile(r"keras_tuner\..*|.*Tuner"),
    "run": re.compile(r"tuning\.(Sweep|load|load_yaml)"),
    "start": re.compile(r"tuning\.(Sweep|load|load_yaml)"),
}
"""Method to the full names of the classes and functions that make an object which searches, or
trains, by it.
"""


def import_problems(path: Path, root: Path) -> list[str]:
    """One line for each search or training that an import of a file begins.

    Args:
        root: the folder within which imports are the user's own.
    """
    project = Project(root)
    waiting, found, problems = [path], {path}, list[str]()
    while waiting:
        file = project.file(waiting.pop(0))
        for node in _run_at_import(file.tree.body):
            problems += _problems(project, file, node)
            if isinstance(node, ast.Import | ast.ImportFrom):
                paths = {p for places in project.imports(file, node).values() for p, _ in places}
                waiting += sorted(paths - found)
                found |= paths
    return problems


def _problems(project: Project, file: PythonFile, statement: ast.AST) -> Iterator[str]:
    # main(), whatever it does, is the whole program
    is_main = isinstance(statement, ast.Expr) and ast.unparse(statement.value) == "main()"
    for call in _calls([statement]):
        if is_main or _searches(project, file, call, None, set()):
            name = file.name(call.func)
            shown = name.rpartition(".")[2] if name.startswith(".") else ast.unparse(call.func)
            problem = f"calls {shown}() when a worker imports the file"
            yield f"{file.path}:{call.lineno}: {problem}; put it under if __name__ == '__main__':"


def _run_at_import(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """The simple statements, and the heads of others, that an import of a file runs."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parts = list(ast.iter_child_nodes(node))
        inner = [n for n in parts if isinstance(n, ast.stmt)]
        if not inner:
            yield node
            continue
        yield from (n for n in parts if isinstance(n, ast.expr | ast.withitem))
        handled = [s for n in parts if isinstance(n, ast.ExceptHandler) for s in n.body]
        entered = _entered(node) if isinstance(node, ast.If) else [*inner, *handled]
        yield from _run_at_import(entered)


def _entered(node: ast.If) -> list[ast.stmt]:
    """What may run of an `if` at an import, where `__name__` is not "__main__"."""
    test = node.test
    if isinstance(test, ast.Constant):
        return node.body if test.value else node.orelse
    if "__name__" not in ast.unparse(test):
        return [*node.body, *node.orelse]
    return node.body if any(isinstance(n, ast.NotEq) for n in ast.walk(test)) else node.orelse


def _searches(
    project: Project,
    file: PythonFile,
    call: ast.Call,
    owner: ast.ClassDef | None,
    seen: set[ast.AST],
) -> bool:
    """Whether a call searches or trains, itself or in what it calls."""
    if _is_search(call, file):
        return True
    found = project.called(file, call.func, owner)
    if found is None or found.node in seen:
        return False
    seen.add(found.node)
    calls = _calls(found.body)
    return any(_searches(project, found.file, inner, found.owner, seen) for inner in calls)


def _calls(nodes: Sequence[ast.AST]) -> Iterator[ast.Call]:
    return (n for n in inner_nodes(nodes) if isinstance(n, ast.Call))


def _is_search(call: ast.Call, file: PythonFile) -> bool:
    if _FUNCTIONS.fullmatch(file.name(call.func)):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    method, keywords = call.func.attr, {k.arg for k in call.keywords}
    if method == "optimize":
        return "n_trials" in keywords or any("optuna" in name for name in file.imported)
    if method in ("fit", "parse_args") and not call.args and not keywords:
        return True
    makers = _METHODS.get(method)
    return makers is not None and bool(makers.fullmatch(_maker(call.func.value, file)))


def _maker(receiver: ast.expr, file: PythonFile) -> str:
    """The full name of what was called to make an object; empty if that is not known."""
    name, made = ast.unparse(receiver), [receiver]
    for node in file.nodes:
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            made.append(node.value)
    calls = [node for node in made if isinstance(node, ast.Call)]
    return file.name(calls[-1].func) if calls else ""
