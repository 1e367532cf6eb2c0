"""A view of a program's own folder as the trial's working directory: `cwd: project`.

Folders are made, small files copied and large ones linked. So what the program creates or changes
is the trial's. Only a large file that it opens for writing is the project's own; that is noticed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from results.paths import SweepPaths
from search_spaces.errors import UserError

_COPIED = 2**24
"""Bytes; a larger file is data."""
_MOST_FILES, _MOST_BYTES = 10_000, 2**30
"""Of a view; the bytes are those of the files that are copied."""


def make_view(project: Path, work: Path) -> dict[Path, int]:
    """Fill a working directory; what an earlier attempt left there stays.

    Args:
        project, work: absolute, without links.

    Returns:
        The files that are linked, and when they were changed last (ns).

    Raises:
        UserError: the project is too large.
    """
    check_size(project, work)
    linked = {}
    for path in [*_entries(project, work)]:
        target = work / path.relative_to(project)
        if not os.path.lexists(target):
            _add(path, target)
        if target.is_symlink() and path.is_file():
            linked[path] = path.stat().st_mtime_ns
    return linked


def _add(path: Path, target: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        target.mkdir()
    elif _is_copied(path):
        shutil.copy(path, target)
    else:
        target.symlink_to(path.resolve())


def changed_files(linked: dict[Path, int]) -> list[Path]:
    """Linked files that have been changed since; see `make_view`."""
    return [p for p, time in linked.items() if not p.exists() or p.stat().st_mtime_ns != time]


def check_size(project: Path, work: Path) -> None:
    """Refuse a project of which each trial cannot have a view.

    Raises:
        UserError: it has too many files, or too large ones.
    """
    size = 0
    for files, path in enumerate(_entries(project, work), start=1):
        size += path.stat().st_size if _is_copied(path) else 0
        if files > _MOST_FILES or size > _MOST_BYTES:
            raise UserError(
                f"project: {project} has more than {_MOST_FILES} files, or 1 GiB in small ones, of "
                "which each trial would get a view; move data out of it, and give their path as an "
                "argument or under fixed"
            )


def _is_copied(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= _COPIED


def _entries(project: Path, work: Path) -> Iterator[Path]:
    """Folders and files, parents first, without hidden folders, environments and sweeps."""
    for parent, folders, files in os.walk(project):
        folders[:] = [name for name in sorted(folders) if _is_own(Path(parent, name), work)]
        yield from (Path(parent, name) for name in (*folders, *sorted(files)))


def _is_own(folder: Path, work: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name == "__pycache__"
    other = (folder / "pyvenv.cfg").exists() or SweepPaths(folder).study.exists()
    return not hidden and not other and not work.is_relative_to(folder)
