"""The Python standard library as data: its source files, and questions that its docstrings answer.

The modules are parsed, not imported. A text answers one question only, so that a split never has
an answer of another.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from trainables.data.corpora.generated import write_rows

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test"}
"""Tests and installed packages are not the library."""
MAX_ROWS = 6_000
MAX_ANSWER = 240
"""Characters; longer first paragraphs are left out."""
_KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def library_files(without: str) -> list[Path]:
    """Paths below `LIBRARY`, in an order that mixes the packages, the same on all machines.

    Args:
        without: name of folders to skip, too.
    """
    found: list[Path] = []
    for folder, folders, files in os.walk(LIBRARY):
        folders[:] = set(folders) - _SKIPPED - {without}  # before walking them: they can be huge
        found += (Path(folder, f).relative_to(LIBRARY) for f in files if f.endswith(".py"))
    return sorted(found, key=lambda path: hashlib.sha256(path.as_posix().encode()).hexdigest())


def write_docstrings(target: Path, limit: int = MAX_ROWS) -> None:
    """Write columns question, answer and module; always the same for one Python version.

    Args:
        target: a Parquet file.
        limit: rows to write at most.
    """
    rows: dict[str, tuple[str, str, str]] = {}
    for row in _questions():
        rows.setdefault(row[1].lower(), row)
        if len(rows) == limit:
            break
    write_rows(("question", "answer", "module"), rows.values(), target)


def _questions() -> Iterator[tuple[str, str, str]]:
    for path in library_files("lib2to3"):
        parts = path.with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            tree = ast.parse((LIBRARY / path).read_bytes())
        except (SyntaxError, ValueError):  # templates that are no Python
            continue
        for name, question, node in _documented(tree, module):
            if answer := _first_paragraph(ast.get_docstring(node)):
                yield question.format(name), answer, module


def _documented(tree: ast.Module, module: str) -> Iterator[tuple[str, str, ast.Module | _Named]]:
    yield module, "What is the module {} for?", tree
    for node in tree.body:
        if not isinstance(node, _KINDS) or node.name.startswith("_"):
            continue
        name = f"{module}.{node.name}"
        is_class = isinstance(node, ast.ClassDef)
        yield name, "What is {}?" if is_class else "What does {} do?", node
        for inner in node.body if is_class else ():
            if isinstance(inner, _KINDS) and not inner.name.startswith("_"):
                yield f"{name}.{inner.name}", "What does {} do?", inner


def _first_paragraph(text: str | None) -> str | None:
    first = " ".join(re.split(r"\n\s*\n", inspect.cleandoc(text or ""))[0].split())
    return first if 8 <= len(first) <= MAX_ANSWER else None
