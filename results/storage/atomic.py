"""Durable, atomic writes: a reader never sees half a file, whenever the writer dies."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io
from search_spaces.checksum import json_is_intact
from search_spaces.errors import UserError

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Disk full, quota reached, file size limit reached."""


@retry_io
def fsync_dir(folder: Path) -> None:
    """Make the entries of a folder (renames, new files) durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@retry_io
def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: write a temporary file, fsync, rename, fsync the folder."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with _explain_disk_full(path, len(data), tmp), open(tmp, "wb", opener=open_private) as f:
        f.write(data)
        f.flush()
        fault_point(f"{path.name}:written")
        os.fsync(f.fileno())
    fault_point(f"{path.name}:synced")
    os.replace(tmp, path)
    fault_point(f"{path.name}:renamed")
    fsync_dir(path.parent)
    fault_point(f"{path.name}:durable")


@retry_io
def append_line(path: Path, line: str) -> None:
    """Append one line durably.

    A writer that died in the middle of a line leaves no newline. The next append then starts a new
    line, so only the torn line is lost.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _explain_disk_full(path, len(line) + 1), open(path, "a+b", opener=open_private) as f:
        end = f.seek(0, os.SEEK_END)
        torn = False
        if end:
            f.seek(end - 1)
            torn = f.read(1) != b"\n"
        f.write(b"\n" * torn + line.encode() + b"\n")
        f.flush()
        fault_point(f"{path.name}:written")
        os.fsync(f.fileno())
    fault_point(f"{path.name}:durable")


@contextmanager
def _explain_disk_full(path: Path, size: int, tmp: Path | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if tmp is not None:
            tmp.unlink(missing_ok=True)
        if e.errno in DISK_FULL_ERRNOS:
            raise disk_full_error(path, size) from e
        raise


def disk_full_error(path: Path, size: int) -> UserError:
    """The error for `size` bytes of a file that could not be written."""
    free = shutil.disk_usage(path.parent).free
    return UserError(
        f"{path}: No space left on device for {size} bytes ({free} free, without quotas); free "
        "some space, then run tune resume"
    )


def free_bytes(folder: Path) -> int:
    """Free bytes on the file system of a folder, which need not exist yet."""
    existing = next(p for p in [folder, *folder.parents] if p.exists())
    return shutil.disk_usage(existing).free


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of an append-only file, see `parse_lines`; none if the file is missing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    yield from parse_lines(data)


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """JSON objects, one per line. Lines that are torn, damaged or not objects are skipped."""
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:  # torn: JSONDecodeError or UnicodeDecodeError
            continue
        if isinstance(value, dict) and json_is_intact(line):
            yield value


def open_private(path: str, flags: int) -> int:
    """For `open(…, opener=open_private)`: create files with mode 0600."""
    return os.open(path, flags, 0o600)
