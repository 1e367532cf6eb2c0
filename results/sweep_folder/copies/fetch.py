"""Writes the files of a backup into a new folder."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from results.storage.object_store import ContentMismatchError, ObjectStore
from results.sweep_folder.copies.backup import FILES, Backup, BackupFile, labels, others
from search_spaces.errors import UserError

_THREADS = 8
_CHECKPOINT = re.compile(r"((?:stages/[^/]+/)?trials/[^/]+/checkpoints/[^/]+)/.+")


def fetch_backup(objects: ObjectStore, backup: Backup, root: Path) -> list[str]:
    """Fetch every file, and compare its hash.

    Args:
        root: an empty folder.

    Returns:
        The checkpoints that are damaged in the backup and were left out, as paths in the folder.

    Raises:
        UserError: another file is damaged in the backup.
        OSError: the storage failed.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        fetched = pool.map(lambda item: _fetch(objects, root, *item), backup.files.items())
        damaged = [name for name, ok in zip(backup.files, fetched, strict=True) if not ok]
    found = {name: _CHECKPOINT.fullmatch(name) for name in damaged}
    if lost := next((name for name, match in found.items() if match is None), None):
        advice = others(labels(objects), backup.label)
        raise UserError(f"{objects.address}: {lost} of {backup.label} is damaged; {advice}")
    left_out = sorted({match[1] for match in found.values() if match})
    for folder in left_out:
        shutil.rmtree(root / folder)
    return left_out


def _fetch(objects: ObjectStore, root: Path, name: str, entry: BackupFile) -> bool:
    """Fetch a file; False if the backup does not have it as its manifest says."""
    target = root / name
    if not target.resolve().is_relative_to(root.resolve()):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        objects.fetch(f"{FILES}/{entry.sha256}", target, entry.sha256)
    except (FileNotFoundError, ContentMismatchError):
        return False
    os.utime(target, (entry.modified, entry.modified))  # shows the length of a killed session
    return True
