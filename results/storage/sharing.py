"""Who may read and write what is created in a storage: its owner alone, or its group.

A storage whose folder has the set-group-ID bit and is writable for its group (`chmod g+ws`) is that
of several people: new files and folders in it are their group's. Any other is private.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

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
