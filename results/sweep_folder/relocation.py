"""Renames the folder of a sweep or pipeline, or deletes it, while no driver runs it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from results.sweep_folder.lock import acquire_lock, refuse_if_driven, release_lock
from search_spaces.errors import UserError

_LOCK, _TRASH = "owner.lock", ".deleted"


def rename_folder(root: Path, target: Path, places: Iterable[str] = ()) -> list[Path]:
    """Rename the folder of a sweep or pipeline, in one step.

    Returns:
        Those of `places`, by which its own files name it, that are now links to it.

    Raises:
        UserError: a driver runs it or a stage of it, or the new name is taken.
    """
    named = [place for place in map(Path, places) if place.exists() and place.samefile(root)]
    is_earlier = target.is_symlink() and target.exists() and target.samefile(root)
    if os.path.lexists(target) and not is_earlier:
        raise UserError(f"{target}: exists; choose another name")
    for lock in root.glob(f"stages/*/{_LOCK}"):
        refuse_if_driven(lock)
    with acquire_lock(root / _LOCK) as owner:
        if is_earlier:
            target.unlink()
        os.rename(root, target)
        release_lock(target / _LOCK, token=owner.token)
    links = [place for place in named if not place.exists()]
    for link in links:
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))
    return links


def delete_folder(root: Path, places: Iterable[str] = ()) -> None:
    """Delete the folder of a sweep or pipeline; a crash leaves all of it, or nothing that is one.

    Links to it at `places` are deleted, too.

    Raises:
        UserError: a driver runs it or a stage of it, or files of it cannot be removed.
    """
    trash = root.parent / _TRASH  # no sweep is found inside it
    trash.mkdir(exist_ok=True)
    renamed = trash / f"{root.name}-{uuid.uuid4().hex[:8]}"
    for link in rename_folder(root, renamed, places):
        link.unlink()
    shutil.rmtree(trash, ignore_errors=True)  # also what a deletion left that was killed
    if renamed.exists():
        raise UserError(f"{renamed}: not all of it could be removed; remove it by hand")
