"""Renames the folder of a sweep or pipeline, or deletes it, while no driver runs it."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from results.sweep_folder.lock import acquire_lock, refuse_if_driven, release_lock
from search_spaces.errors import UserError

_LOCK, _TRASH = "owner.lock", ".deleted"


def rename_folder(root: Path, target: Path) -> None:
    """Rename the folder of a sweep or pipeline, in one step.

    Raises:
        UserError: a driver runs it or a stage of it, or the new name is taken.
    """
    if os.path.lexists(target):
        raise UserError(f"{target}: exists; choose another name")
    for lock in root.glob(f"stages/*/{_LOCK}"):
        refuse_if_driven(lock)
    with acquire_lock(root / _LOCK) as owner:
        os.rename(root, target)
        release_lock(target / _LOCK, token=owner.token)


def delete_folder(root: Path) -> None:
    """Delete the folder of a sweep or pipeline; a crash leaves all of it, or nothing that is one.

    Raises:
        UserError: a driver runs it or a stage of it, or files of it cannot be removed.
    """
    trash = root.parent / _TRASH  # no sweep is found inside it
    trash.mkdir(exist_ok=True)
    renamed = trash / f"{root.name}-{uuid.uuid4().hex[:8]}"
    rename_folder(root, renamed)
    shutil.rmtree(trash, ignore_errors=True)  # also what a deletion left that was killed
    if renamed.exists():
        raise UserError(f"{renamed}: not all of it could be removed; remove it by hand")
