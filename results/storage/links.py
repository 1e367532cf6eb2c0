"""Refuses links that would carry what is written into a folder to another place."""

from __future__ import annotations

import os
from pathlib import Path

from search_spaces.errors import UserError


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
