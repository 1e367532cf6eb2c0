"""Writing files so that a reader never sees half of one, whenever the writer dies."""

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
    """Replace a file's content: temporary file, fsync, rename, fsync of the folder."""
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
    """Append one line durably, on a line of its own even after a torn one.

    A writer that died in mid-line leaves no newline; the next append starts a new line, so that
    only the torn one is lost.
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
    """What to say when `size` bytes of a file could not be written; nothing was deleted for it."""
    free = shutil.disk_usage(path.parent).free
    return UserError(
        f"{path}: No space left on device for {size} bytes ({free} free, quotas apart); make room, "
        "then go on with tune resume"
    )


def free_bytes(folder: Path) -> int:
    """Bytes that are free where a folder is, or will be."""
    there = next(p for p in [folder, *folder.parents] if p.exists())
    return shutil.disk_usage(there).free


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of an append-only file; lines that are torn or not objects are passed over."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    yield from parse_lines(data)


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """JSON objects, one a line; lines that are torn, damaged or no objects are passed over."""
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
        except ValueError:  # torn: JSONDecodeError or UnicodeDecodeError
            continue
        if isinstance(value, dict) and json_is_intact(line):
            yield value


def open_private(path: str, flags: int) -> int:
    """For `open(…, opener=open_private)`: a file that is new is the user's alone."""
    return os.open(path, flags, 0o600)
