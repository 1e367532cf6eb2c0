"""Durable, atomic writes: a reader never sees half a file, whenever the writer dies."""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, TypeVar

from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io
from search_spaces.checksum import json_is_intact
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular

T = TypeVar("T", str, bytes)

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Disk full, quota reached, file size limit reached."""


_SYNCS_AT_ONCE = 32
_deferred: ContextVar[set[Path] | None] = ContextVar("deferred", default=None)


@contextmanager
def deferred_sync() -> Iterator[None]:
    """Make what the block writes durable when it ends, all at once.

    If the process is killed in the block, files are as without it; if the machine loses power, any
    of the block's writes may be lost.
    """
    if _deferred.get() is not None:
        yield
        return
    paths: set[Path] = set()
    token = _deferred.set(paths)
    try:
        yield
    finally:
        _deferred.reset(token)
        _sync_all(paths)


def _sync_all(paths: Iterable[Path]) -> None:
    queue = deque(paths)

    def sync() -> None:
        with suppress(IndexError):  # it is empty
            while True:
                fsync_dir(queue.popleft())

    with suppress(RuntimeError), ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
        for done in [pool.submit(sync) for _ in range(min(len(queue), _SYNCS_AT_ONCE))]:
            done.result()
    sync()  # an interpreter that shuts down starts no thread


def _defer(path: Path) -> bool:
    """Whether a path is synced at the end of a block."""
    if (paths := _deferred.get()) is None:
        return False
    paths.add(path)
    return True


@retry_io
def fsync_dir(folder: Path) -> None:
    """Make the entries of a folder (renames, new files), or a file, durable."""
    if _defer(folder):
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EROFS: "mount it for writing",
    errno.EACCES: "give this user access to it",
    errno.EIO: "check the disk or its network",
    errno.ESTALE: "mount it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
}
"""What helps against an error of storage that persists, by its number."""


def storage_error(error: OSError, path: object = None, size: int | None = None) -> UserError:
    """The error for people, of a number in `ADVICE`.

    Args:
        error: its file is named, unless `path` is given.
        path: the file.
        size: bytes that were to be written.
    """
    place = path or error.filename or "storage"
    needed = "" if size is None else f" for {size} bytes"
    if isinstance(path, Path) and error.errno in DISK_FULL_ERRNOS:
        needed += f" ({free_bytes(path.parent)} free, without quotas)"
    said = os.strerror(error.errno or 0)
    return UserError(f"{place}: {said}{needed}; {ADVICE[error.errno or 0]}, then run tune resume")


def _durable(write: Callable[[Path, T], None]) -> Callable[[Path, T], None]:
    """Retry transient errors of a write, and explain those that persist."""
    tried = retry_io(write)

    @functools.wraps(write)
    def explained(path: Path, content: T) -> None:
        try:
            tried(path, content)
        except OSError as e:
            if e.errno not in ADVICE:
                raise
            raise storage_error(e, path, len(content)) from e

    return explained


@_durable
def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: write a temporary file, fsync, rename, fsync the folder.

    Raises:
        UserError: an error of the storage that persists; see `ADVICE`.
    """
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write_synced(tmp, data, f"{path.name}:written", sync=not _defer(path))
    except OSError:
        with suppress(OSError):
            tmp.unlink()
        raise
    fault_point(f"{path.name}:synced")
    os.replace(tmp, path)
    fault_point(f"{path.name}:renamed")
    fsync_dir(path.parent)
    fault_point(f"{path.name}:durable")


def _write_synced(path: Path, data: bytes, point: str, *, sync: bool) -> None:
    with _opened(path, "wb") as f:
        f.write(data)
        f.flush()
        fault_point(point)
        if sync:
            os.fsync(f.fileno())


@_durable
def append_line(path: Path, line: str) -> None:
    """Append one line durably.

    A writer that died in the middle of a line leaves no newline. The next append then starts a new
    line, so only the torn line is lost.

    Raises:
        UserError: an error of the storage that persists; see `ADVICE`.
    """
    with _opened(path, "a+b") as f:
        end = f.seek(0, os.SEEK_END)
        torn = False
        if end:
            f.seek(end - 1)
            torn = f.read(1) != b"\n"
        f.write(b"\n" * torn + line.encode() + b"\n")
        f.flush()
        try:
            fault_point(f"{path.name}:written")
            if not _defer(path):
                os.fsync(f.fileno())
        except OSError:
            if f.tell() == os.fstat(f.fileno()).st_size:  # a retry would write it again
                f.truncate(end)
            raise
    fault_point(f"{path.name}:durable")


def _opened(path: Path, mode: str) -> IO[bytes]:
    """Open a file privately; its folder is made if it is not there, which is rare."""
    try:
        return open(path, mode, opener=open_private)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open(path, mode, opener=open_private)


def free_bytes(folder: Path) -> int:
    """Free bytes on the file system of a folder, which need not exist yet."""
    existing = next(p for p in [folder, *folder.parents] if p.exists())
    return shutil.disk_usage(existing).free


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of an append-only file, see `parse_lines`; none if the file is missing."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return
    yield from parse_lines(data)


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """JSON objects, one per line. Lines that are torn, damaged or not objects are skipped."""
    for line in data.split(b"\n"):
        try:
            value = parse_json(line)
        except ValueError:  # torn
            continue
        if isinstance(value, dict) and json_is_intact(line):
            yield value


def open_private(path: str, flags: int) -> int:
    """For `open(…, opener=open_private)`: create files with mode 0600, and follow no link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
