"""Who may read and write what is created in a storage, its owner alone or its group, and where.

A storage whose folder has the set-group-ID bit and is writable for its group (`chmod g+ws`) is that
of several people: new files and folders in it are their group's. Any other is private.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from search_spaces.errors import UserError

_shared = False


def is_shared(folder: Path) -> bool:
    """Whether new files in a folder are its group's; of a new folder, as in the one above."""
    needed = stat.S_ISGID | stat.S_IWGRP
    return nearest_folder(folder).stat().st_mode & needed == needed


def nearest_folder(folder: Path) -> Path:
    """A folder, or the nearest one above it that exists."""
    return next(p for p in (folder, *folder.parents) if p.exists())


def use_modes_of(folder: Path) -> None:
    """Set the modes of what this process creates from now on to those of a storage."""
    global _shared
    _shared = is_shared(folder)
    os.umask(0o007 if _shared else 0o077)


def file_mode() -> int:
    """Mode of a new file, whatever the umask allows more."""
    return 0o660 if _shared else 0o600


def folder_mode() -> int:
    """Mode of a new folder, likewise."""
    return 0o770 if _shared else 0o700


def refuse_outside_links(root: Path) -> None:
    """Pass for a folder below which no link leads out of it.

    Two folders are not entered: checkpoints, which are only written while they have another name,
    and in which such a link is damage; and `work`, in which only the user's code writes.

    Raises:
        UserError: there is such a link, or a folder cannot be read.
    """
    top = Path(os.path.realpath(root))
    pending = [top]
    while pending:
        folder = pending.pop()
        for entry in _entries(folder):
            target = Path(os.path.realpath(entry.path)) if entry.is_symlink() else top
            if not target.is_relative_to(top):
                raise UserError(
                    f"{entry.path}: is a link to {target}, outside of the sweep's folder, where "
                    "nothing is written; replace it by what it points to, or remove it"
                )
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and folder.name != "checkpoints" and entry.name != "work":
                pending.append(Path(entry.path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:  # a driver has just removed it
        return []
    except OSError as e:
        raise UserError(f"{folder}: cannot be read ({e.strerror})") from e
