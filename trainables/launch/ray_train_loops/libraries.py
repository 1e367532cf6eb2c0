"""Imports what a script imports, without running the script.

A process that waits for its trial does this. The script itself runs in the attempt, so it finds its
own working directory, time, environment and random state, and prints to the trial's log.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from trainables.runtime.source import source_digests
from trainables.user_code import loader


def import_libraries(name: str) -> None:
    """Import the libraries of a loop that its files import at the top, or within the loop.

    An import that fails does so again, with its message, when the script runs.
    """
    root = loader.root_of(name)
    for statement in library_imports(name):
        with suppress(Exception):
            exec(compile(ast.Module([statement], []), str(root), "exec"), {})
    if "torch" in sys.modules:
        import_module("torch._dynamo")  # the first DDP model imports it


def library_imports(name: str) -> Iterator[ast.stmt]:
    """The import statements of a loop's files for modules that are not below its own folder."""
    (file, loop), root = loader.function(name), loader.root_of(name)
    files = (root / each for each in source_digests(file.path, root))
    bodies = [*(ast.parse(each.read_bytes()).body for each in files), loop.body if loop else []]
    for node in (node for body in bodies for node in _imports(body)):
        if not _is_own(node, root):
            yield node


def _imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.With):
            yield from _imports(node.body)


def _is_own(node: ast.Import | ast.ImportFrom, root: Path) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
        relative = node.level > 0
    else:
        names, relative = [alias.name for alias in node.names], False
    tops = {name.partition(".")[0] for name in names}
    return relative or root.name in tops or any(PathFinder.find_spec(t, [str(root)]) for t in tops)
