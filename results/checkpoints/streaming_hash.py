"""Large files that are hashed while they are written: none is read back for its hash.

The hash waits in a note beside the file until the checkpoint is sealed, which may be the task of
another process: every rank writes its part.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from results.storage.atomic import open_private
from results.storage.fault_injection import fault_point
from results.storage.retry import retry_io

_WRITEBACK_BYTES = 8 * 2**20  # bytes after which the disk is told to begin
MIN_STREAMED_BYTES = 2**20
"""Bytes from which on. What is smaller would have to wait for the disk alone; the seal makes all of
it durable at once."""
_SYNC_FILE_RANGE_WRITE = 2
_SIDECAR_SUFFIX = ".hashed"


class FileEntry(BaseModel):
    """One file of a checkpoint: its size in bytes and its SHA-256 in hex."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


class _HashSidecar(BaseModel):
    """What was written, and when: a file that was changed since is hashed again."""

    entry: FileEntry
    mtime_ns: int


@retry_io
def write_hashed(path: Path, parts: Sequence[memoryview]) -> None:
    """Write a file into a folder that becomes a checkpoint: a large one durably, and hashed.

    Args:
        path: in an existing folder; replaced if it is there.
        parts: its content, C-contiguous bytes, which nobody may change meanwhile.

    Raises:
        OSError: the disk is full, or broken.
    """
    size = sum(len(part) for part in parts)
    if size < MIN_STREAMED_BYTES:
        with open(path, "wb", opener=open_private) as out:
            out.writelines(parts)
        return
    with ThreadPoolExecutor(1) as pool:
        hashing = pool.submit(_digest, parts)
        mtime_ns = _write(path, parts)
        sha256 = hashing.result()
    note = _HashSidecar(entry=FileEntry(size=size, sha256=sha256), mtime_ns=mtime_ns)
    _sidecar(path).write_text(note.model_dump_json())
    fault_point("checkpoint:file-synced")


def pop_hash_sidecar(path: Path) -> FileEntry | None:
    """What was noted when a file was written, if it is still true; the note is deleted."""
    try:
        said = _HashSidecar.model_validate_json(_sidecar(path).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        said = None
    _sidecar(path).unlink()
    there = path.stat()
    now = there.st_size, there.st_mtime_ns
    return said.entry if said and now == (said.entry.size, said.mtime_ns) else None


def is_hash_sidecar(path: Path) -> bool:
    """Whether a file is no part of a checkpoint, but a note on one."""
    return path.name.startswith(".") and path.name.endswith(_SIDECAR_SUFFIX)


def hash_file(path: Path) -> FileEntry:
    """Size and hash of a file that is there."""
    with open(path, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
        return FileEntry(size=os.fstat(f.fileno()).st_size, sha256=digest)


def _write(path: Path, parts: Sequence[memoryview]) -> int:
    """Write and flush; gives the time of the last change, in nanoseconds."""
    begun = written = 0
    with open(path, "wb", opener=open_private) as out:
        for piece in _pieces(parts):
            written += out.write(piece)
            if written - begun >= _WRITEBACK_BYTES:
                _start_writing(out.fileno(), begun, written - begun)
                begun = written
        out.flush()
        os.fsync(out.fileno())
        return os.fstat(out.fileno()).st_mtime_ns


def _digest(parts: Sequence[memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _pieces(parts: Sequence[memoryview]) -> Iterator[memoryview]:
    for part in parts:
        for start in range(0, len(part), _WRITEBACK_BYTES):
            yield part[start : start + _WRITEBACK_BYTES]


def _start_writing(fd: int, start: int, size: int) -> None:
    """Let the disk begin with what is in the page cache, rather than all at once at the fsync."""
    begin = _sync_file_range()
    if begin is not None:
        begin(fd, start, size, _SYNC_FILE_RANGE_WRITE)  # where it fails, the fsync does it all


@cache
def _sync_file_range() -> Any:
    """Linux has it; None elsewhere."""
    with suppress(AttributeError, OSError, TypeError):
        call = ctypes.CDLL(None).sync_file_range
        call.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
        return call
    return None


def _sidecar(path: Path) -> Path:
    return path.with_name(f".{path.name}{_SIDECAR_SUFFIX}")
