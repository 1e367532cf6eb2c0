"""Durable, atomic writes: a reader never sees half a file, whenever the writer dies."""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io
from results.storage.sharing import file_mode, folder_mode, nearest_folder
from search_spaces.checksum import json_is_intact
from search_spaces.errors import DamagedRecordsError, UserError
from search_spaces.files import parse_json, read_regular

T = TypeVar("T", str, bytes)

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Disk full, quota reached, file size limit reached."""
_FEW_INODES = 16
"""Temporary files that were deleted after the error have given some back."""


@retry_io
def fsync_dir(folder: Path) -> None:
    """Make the entries of a folder (renames, new files) durable."""
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
    errno.EISDIR: "move the folder away",
    errno.EIO: "check the disk or its network",
    errno.ESTALE: "mount it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the machine's limit of open files (fs.file-max)",
}
"""What helps against an error of storage that persists, by its number."""
_THEN_RESUME = ", then run tune resume"


def storage_error(error: OSError, path: object = None, size: int | None = None) -> UserError:
    """The error for people, of a number in `ADVICE`.

    Args:
        error: its file is named, unless `path` is given.
        path: the file.
        size: bytes that were to be written.
    """
    place = path or error.filename or "storage"
    problem, advice = os.strerror(error.errno or 0), ADVICE[error.errno or 0]
    if size is not None:
        problem += f" for {size} bytes"
    if error.errno in DISK_FULL_ERRNOS and isinstance(place, str | Path) and os.path.isabs(place):
        free, few_inodes = free_space(Path(place).parent)
        problem += f" ({free})"
        if error.errno == errno.ENOSPC and few_inodes:
            advice = "delete some files"
    return UserError(f"{place}: {problem}; {advice}{_THEN_RESUME}")


def then_again(problem: str) -> str:
    """The words of a `storage_error` in a command that `tune resume` does not continue."""
    return problem.replace(_THEN_RESUME, ", then run the command again")


def durable(write: Callable[[Path, T], None]) -> Callable[[Path, T], None]:
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


@durable
def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file: write a temporary file, fsync, rename, fsync the folder.

    Raises:
        UserError: an error of the storage that persists; see `ADVICE`.
    """
    write_temporary(path, data, sync=True)
    fault_point(f"{path.name}:synced")
    os.replace(temporary(path), path)
    fault_point(f"{path.name}:renamed")
    fsync_dir(path.parent)
    fault_point(f"{path.name}:durable")


def temporary(path: Path) -> str:
    """The file beside another that has its content until it replaces that."""
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.{os.getpid()}.tmp"


def write_temporary(path: Path, data: bytes, *, sync: bool) -> None:
    """Write what a file is to have to its `temporary`."""
    tmp = temporary(path)
    try:
        file = _opened(tmp, os.O_WRONLY | os.O_TRUNC)
        try:
            _write_all(file, data)
            fault_point(f"{path.name}:written")
            if sync:
                os.fsync(file)
        finally:
            os.close(file)
    except OSError:
        with suppress(OSError):
            os.unlink(tmp)
        raise


@durable
def append_line(path: Path, line: str) -> None:
    """Append one line durably.

    A writer that died in the middle of a line leaves no newline. The next append then starts a new
    line, so only the torn line is lost.

    Raises:
        UserError: an error of the storage that persists; see `ADVICE`.
    """
    append(path, line, sync=True)
    fault_point(f"{path.name}:durable")


def append(path: Path, line: str, *, sync: bool) -> None:
    """Append a line as `append_line` does; durably only if it is synced."""
    file = _opened(path, os.O_RDWR | os.O_APPEND)
    try:
        end = os.fstat(file).st_size
        torn = end > 0 and os.pread(file, 1, end - 1) != b"\n"
        data = b"\n" * torn + line.encode() + b"\n"
        _write_all(file, data)
        try:
            fault_point(f"{path.name}:written")
            if sync:
                os.fsync(file)
        except OSError:
            if os.fstat(file).st_size == end + len(data):  # a retry would write it again
                os.ftruncate(file, end)
            raise
    finally:
        os.close(file)


def _opened(path: Path | str, flags: int) -> int:
    """Open a file privately; its folder is made if it is not there, which is rare."""
    try:
        return open_private(path, flags | os.O_CREAT)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True, mode=folder_mode())
        return open_private(path, flags | os.O_CREAT)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def quarantine_file(path: Path) -> Path | None:
    """Rename a damaged file or folder to a free name; None if it does not exist."""
    for number in range(1, 10_000):
        kept = path.with_name(f"{path.name}.damaged" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(kept):
            break
    if not os.path.lexists(path):
        return None
    os.replace(path, kept)
    return kept


def free_bytes(folder: Path) -> int:
    """Free bytes on the file system of a folder, which need not exist yet."""
    return shutil.disk_usage(nearest_folder(folder)).free


def free_space(folder: Path) -> tuple[str, bool]:
    """What is free on the file system of a folder, in words, and whether few inodes are.

    A file system without a free inode takes no new file, however many bytes are free.
    """
    found = os.statvfs(nearest_folder(folder))
    few_inodes = found.f_files > 0 and found.f_favail < _FEW_INODES
    inodes = f", {found.f_favail} of {found.f_files} inodes" if few_inodes else ""
    return f"{free_bytes(folder)} bytes{inodes} free, without quotas", few_inodes


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of an append-only file, see `parse_lines`; none if the file is missing."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return
    except OSError as e:
        raise DamagedRecordsError(f"{path}: cannot be read ({e.strerror})") from e
    yield from parse_lines(data)


def read_new_lines(path: Path, position: int) -> tuple[list[dict[str, Any]], int]:
    """JSON objects of complete lines after `position` bytes, and the new position."""
    try:
        with open(path, "rb") as f:
            f.seek(position)
            data = f.read()
    except OSError:
        return [], position
    complete = data.rfind(b"\n") + 1
    return list(parse_lines(data[:complete])), position + complete


def parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """JSON objects, one per line. Lines that are torn, damaged or not objects are skipped."""
    for line in data.split(b"\n"):
        try:
            value = parse_json(line)
        except ValueError:  # torn
            continue
        if isinstance(value, dict) and json_is_intact(line):
            yield value


def open_private(path: Path | str, flags: int) -> int:
    """For `open(…, opener=open_private)`: create files for the owner, and follow no link.

    In a storage of several people, for their group too; see `results.storage.sharing`.
    """
    return os.open(path, flags | os.O_NOFOLLOW, file_mode())
