"""Finds and imports users' training code, in a script or a module.

Finding it only parses the file: a typo must not cost an import of torch. A train loop is imported
on the workers only.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from results.own_program import PACKAGES, PROGRAM, standard_library
from search_spaces.errors import UserError, suggest
from trainables.runtime.source import module_files, package_root, source_digests
from trainables.user_code.python_source.python_file import PythonFile, read_file
from trainables.user_code.python_source.searches import import_problems

Loop = Callable[..., Any]
_TAKEN = PACKAGES | sys.stdlib_module_names
"""Names of modules that are imported from elsewhere than beside a script."""


def find(name: str) -> Path:
    """The source file of `path/to/script.py:function` or `package.module:function`.

    Raises:
        UserError: the file, the module or the function is not there.
    """
    return locate(name)[0]


def locate(name: str) -> tuple[Path, bool]:
    """The source file, and whether the name is of a class that it defines; see `find`.

    Raises:
        UserError: the file, the module or the function is not there.
    """
    target, file = name.rpartition(":")[2], read(name)
    _refuse_other_modules(name, file.path)
    if target not in file.names:
        if any(getattr(n, "name", None) == target for n in file.statements):
            raise UserError(f"trainable {name}: {target}() is async, and nothing awaits it")
        functions = [n.name for n in file.statements if isinstance(n, ast.FunctionDef)]
        hint = suggest(target, functions or file.names)
        raise UserError(f"trainable {name}: {file.path} has no function '{target}'{hint}")
    return file.path, any(node.name == target for node in file.classes)


def canonical(name: str) -> str:
    """The name with a script's path made absolute, so that it is valid in another folder."""
    where, _, function = name.rpartition(":")
    return f"{find(name)}:{function}" if _is_script(where) else name


def root_of(name: str) -> Path:
    """The folder within which imports are the user's own: a script's, or the top of its package."""
    return _root(name.rpartition(":")[0], find(name))


def _root(where: str, path: Path) -> Path:
    return path.parent if _is_script(where) else package_root(path, where)


def load(name: str) -> Loop:
    """Import a train loop, or a class.

    A script becomes a module with a name of its own. Its folder stays on `sys.path`, so that the
    script can import the files beside it, also later.

    Raises:
        UserError: the file, the module or the function is not there; or an import of it would begin
            a search.
    """
    where, _, function = name.rpartition(":")
    path = find(name)
    if problems := searches_at_import(name):
        raise UserError(*problems)
    if _is_script(where):
        module = _import_script(path)
    else:
        _on_path(Path.cwd())
        module = importlib.import_module(where)
    loop = getattr(module, function)
    if not callable(loop):
        raise UserError(f"trainable {name}: '{function}' is neither a function nor a class")
    return loop  # type: ignore[no-any-return]  # callable() does not say of what


def searches_at_import(name: str) -> list[str]:
    """One line for each search or training that begins when the file of a name is imported."""
    return import_problems(find(name), root_of(name))


def user_modules(name: str) -> dict[str, ModuleType]:
    """The modules of this process that lie below `root_of(name)`, libraries excluded, by name."""
    root = f"{root_of(name)}{os.sep}"
    files = {n: (m, str(getattr(m, "__file__", ""))) for n, m in list(sys.modules.items())}
    own = {n: m for n, (m, f) in files.items() if f.startswith(root) and "site-packages" not in f}
    return {n: m for n, m in own.items() if n.partition(".")[0] not in PACKAGES}


@contextmanager
def own_modules(name: str) -> Iterator[None]:
    """The user's modules that the block imports are forgotten after it: the next one gets new
    ones. A module is found from another working directory, too.
    """
    if not _is_script(name.rpartition(":")[0]):
        _on_path(Path.cwd())
    before = user_modules(name).keys()
    try:
        yield
    finally:
        for module in user_modules(name).keys() - before:
            del sys.modules[module]


def libraries(name: str) -> tuple[str, ...]:
    """The modules that the files of a function import, at the top or within it, from elsewhere."""
    (file, loop), root = function(name), root_of(name)
    files = (root / each for each in source_digests(file.path, root))
    bodies = [*(ast.parse(each.read_bytes()).body for each in files), loop.body if loop else []]
    names = (n for body in bodies for node in _imports(body) for n in _modules(node))
    return tuple(dict.fromkeys(n for n in names if not _is_own(n.partition(".")[0], root)))


def _imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Try | ast.With):
            yield from _imports(node.body)


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if node.module and not node.level else []


def _is_own(top: str, root: Path) -> bool:
    return top == root.name or PathFinder.find_spec(top, [str(root)]) is not None


def read(name: str) -> PythonFile:
    """The source file of a name.

    Raises:
        UserError: the file or the module is not there, or has a syntax error.
    """
    where = name.rpartition(":")[0]
    path = _script(where) if _is_script(where) else _module_file(where)
    try:
        return read_file(path)
    except SyntaxError as e:
        raise UserError(f"trainable {name}: {path}:{e.lineno}: {e.msg}") from e


def function(name: str) -> tuple[PythonFile, ast.FunctionDef | None]:
    """The source file of a name, and the function if the file defines it."""
    file = read(name)
    return file, file.function(name.rpartition(":")[2])


def _is_script(where: str) -> bool:
    return where.endswith(".py") or "/" in where


def _script(where: str) -> Path:
    path = Path(where).expanduser().absolute()
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = suggest(path.name, near) if near else f" beside the sweep file or in {path.parent}"
        raise UserError(f"trainable {where}: no such file{hint}")
    return path


def _module_file(where: str) -> Path:
    """The source file of a module, found without importing it or its parents."""
    first, *rest = where.split(".")
    spec = PathFinder.find_spec(first, [str(Path.cwd()), *sys.path]) or _installed(first)
    for name in rest:
        within = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(f"{spec.name}.{name}", within) if spec and within else None
    origin = spec.origin if spec else None
    if origin is None or not origin.endswith(".py"):
        raise UserError(
            f"trainable {where}: no such module (from {Path.cwd()});"
            " a script is given as path/to/script.py:function"
        )
    return Path(origin)


def _installed(name: str) -> ModuleSpec | None:
    """A top-level package that is on no path, such as an editable install."""
    try:
        return find_spec(name)
    except ValueError:  # for example of `__main__`
        return None


def _import_script(path: Path) -> Any:
    name = f"_loop_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"trainable {path}: not a Python file")
    _on_path(path.parent)
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _on_path(folder: Path) -> None:
    """Let imports find a folder: before installed packages, but after the standard library."""
    others = [entry for entry in sys.path if entry != str(folder)]
    first = 1 + max((others.index(entry) for entry in standard_library()), default=-1)
    sys.path[:] = [*others[:first], str(folder), *others[first:]]


def _refuse_other_modules(name: str, path: Path) -> None:
    """Refuse code that imports a file beside it, but would get another module of that name.

    Raises:
        UserError: the file is named like a package of this program or a standard module.
    """
    where = name.rpartition(":")[0]
    root = _root(where, path)
    folder = root if _is_script(where) or path == root / f"{where}.py" else root.parent
    beside = _TAKEN & {entry.removesuffix(".py") for entry in os.listdir(folder)}
    hidden = {n: found[0] for n in beside if (found := module_files(n, folder, relative=True))}
    if not hidden or folder == PROGRAM:
        return
    imported = dict.fromkeys([] if _is_script(where) else [where.partition(".")[0]], path)
    for file in [path, *(root / file for file in source_digests(path, root))]:
        if file.is_file():
            imported |= dict.fromkeys(_imported(file), file)
    for module in hidden.keys() & imported.keys():
        owner = "this program" if module in PACKAGES else "Python's standard library"
        raise UserError(
            f"trainable {name}: {imported[module]} imports {module}, which is the one of {owner}, "
            f"not {hidden[module]}; rename that file"
        )


def _imported(file: Path) -> set[str]:
    """The first names of the modules that a file imports, wherever in it."""
    try:
        return {name.partition(".")[0] for name in read_file(file).imported}
    except (SyntaxError, ValueError):  # perhaps for another version of Python
        return set()
