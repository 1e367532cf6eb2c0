"""Source files of a trainable, hashed: `tune reproduce` and the trial cache compare them."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_read: set[Path] = set()
_DOTTED = re.compile(r"\w+(\.\w+)+(:\w+)?")


@cache
def source_digests(file: Path, root: Path) -> Mapping[str, str]:
    """SHA-256 of a Python file and of each file that it imports, by path below `root`.

    Imports are followed within `root`: a script's folder, or the top folder of a package. Text
    that names a module, such as `"package.module:Class"`, counts as an import of it. The digests
    are computed once per process, because the code that was imported is the code that runs.
    """
    found: dict[Path, str] = {}
    _collect(file, root, found)
    paths = {path.relative_to(root).as_posix(): digest for path, digest in found.items()}
    return MappingProxyType(dict(sorted(paths.items())))


def files_read() -> frozenset[Path]:
    """All files that this process has hashed."""
    return frozenset(_read)


def package_root(file: Path, module: str) -> Path:
    """The top folder of the package that a module belongs to; the file's folder for a script."""
    root = file.parent
    for _ in range(module.count(".") - (file.name != "__init__.py")):
        root = root.parent
    return root


def _collect(file: Path, root: Path, found: dict[Path, str]) -> None:
    if file in found:
        return
    text = file.read_bytes()
    _read.add(file)
    found[file] = hashlib.sha256(text).hexdigest()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # perhaps for another version of Python
        return
    for module in _imported(tree):
        for path in module_files(module, root):
            _collect(path, root, found)


def _imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and _DOTTED.fullmatch(str(node.value)):
            names.add(str(node.value).partition(":")[0])
    return names


def module_files(module: str, root: Path, *, relative: bool = False) -> list[Path]:
    """The files of a module below the root: beside a script, or in its package.

    Args:
        relative: whether the name begins below the root, as that of a relative import does.
    """
    parts = module.split(".")
    if not relative and (root / "__init__.py").is_file():
        if parts[0] != root.name:
            return []
        parts = parts[1:]
    path = root.joinpath(*parts)
    return [p for p in (path.with_suffix(".py"), path / "__init__.py") if parts and p.is_file()]
