"""Questions about the Python standard library with answers from its docstrings, as Parquet.

The modules are parsed, not imported. A text answers one question only, so that a split never has
an answer of another.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

MAX_ROWS = 6_000
MAX_ANSWER = 240
"""Characters; longer first paragraphs are left out."""
_SKIPPED = frozenset(
    ("site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test", "lib2to3")
)
_KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def write_docstrings(target: Path, limit: int | None = None) -> None:
    """Write columns question, answer and module; always the same for one Python version.

    Args:
        target: a Parquet file.
        limit: rows to write at most; None: 6,000.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, seen = [], set()
    for question, answer, module in _questions(Path(sysconfig.get_paths()["stdlib"])):
        if answer.lower() in seen:
            continue
        seen.add(answer.lower())
        rows.append({"question": question, "answer": answer, "module": module})
        if len(rows) == (limit or MAX_ROWS):
            break
    pq.write_table(pa.Table.from_pylist(rows), target)


def _questions(root: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(_sources(root), key=_mixed):
        parts = path.with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            tree = ast.parse((root / path).read_bytes())
        except (SyntaxError, ValueError):  # templates that are no Python
            continue
        for name, question, node in _documented(tree, module):
            if answer := _first_paragraph(ast.get_docstring(node)):
                yield question.format(name), answer, module


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (Path(folder, f).relative_to(root) for f in files if f.endswith(".py"))


def _mixed(path: Path) -> str:
    """An order that mixes the packages and does not depend on the machine's folders."""
    import hashlib

    return hashlib.sha256(path.as_posix().encode()).hexdigest()


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
