"""Tries what the records of a sweep rely on, in the folder that will hold them.

FUSE mounts of object storage often copy instead of renaming, cannot append, or ignore locks: a
sweep there loses records when a process is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from results.storage.atomic import DISK_FULL_ERRNOS
from results.storage.sharing import nearest_folder
from search_spaces.errors import UserError

OLD, NEW = b"old", b"newer"


def check_storage(folder: Path) -> None:
    """Check that files can be locked, appended to and replaced at once in a folder.

    Args:
        folder: of sweeps; the nearest folder above it that exists is tried.

    Raises:
        UserError: the folder cannot be written, or something does not hold there.
    """
    try:
        made = Path(tempfile.mkdtemp(prefix=".probe-", dir=nearest_folder(folder)))
    except OSError as e:
        raise UserError(
            f"storage {folder}: cannot create a folder there ({e.strerror}); "
            "choose another with --storage DIR"
        ) from e
    try:
        for what, holds in _PROPERTIES.items():
            try:
                why = None if holds(made) else "it seems to, but has another result"
            except OSError as e:
                if e.errno in DISK_FULL_ERRNOS:
                    advice = "free some space, or choose another with --storage DIR"
                    raise UserError(f"storage {folder}: {e.strerror}; {advice}") from e
                why = e.strerror or str(e)
            if why is not None:
                raise UserError(
                    f"storage {folder}: {what} does not work there ({why}): a kill could damage a "
                    "sweep; choose a local disk or NFS with --storage DIR, and keep a copy in "
                    "object storage with checkpoint.mirror"
                )
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _creates_exclusively(folder: Path) -> bool:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    os.close(os.open(folder / "exclusive", flags))
    try:
        os.close(os.open(folder / "exclusive", flags))
    except FileExistsError:
        return True
    return False


def _replaces(folder: Path) -> bool:
    """A process that has the old file open still reads it: the new one was not copied over it."""
    old, new = folder / "old", folder / "new"
    _write(old, OLD, os.O_TRUNC)
    _write(new, NEW, os.O_TRUNC)
    with open(old, "rb") as reader:
        os.replace(new, old)
        return (reader.read(), old.read_bytes(), new.exists()) == (OLD, NEW, False)


def _appends(folder: Path) -> bool:
    for part in (OLD, NEW):
        _write(folder / "lines", part, os.O_APPEND)
    return (folder / "lines").read_bytes() == OLD + NEW


def _locks(folder: Path) -> bool:
    with open(folder / "lock", "wb") as one, open(folder / "lock", "wb") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _write(file: Path, data: bytes, how: int) -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | how, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_PROPERTIES: dict[str, Callable[[Path], bool]] = {
    "creating a file exclusively": _creates_exclusively,
    "replacing a file at once": _replaces,
    "appending to a file": _appends,
    "locking a file": _locks,
}
"""What is tried, in words, and whether it holds in a folder."""
