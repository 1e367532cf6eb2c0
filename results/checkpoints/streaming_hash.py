"""Hash large files while they are written, so that they are not read again for their hash.

A sidecar file keeps the hash until the checkpoint is committed. The process that commits may be
another one, because every rank writes its own part.
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

_WRITEBACK_BYTES = 8 * 2**20  # start writing to the disk after this many bytes
MIN_STREAMED_BYTES = 2**20
"""Smaller files are not hashed while they are written: the commit makes all of them durable
together, which is faster than to wait for the disk once per file."""
_SYNC_FILE_RANGE_WRITE = 2
_SIDECAR_SUFFIX = ".hashed"


class FileEntry(BaseModel):
    """One file of a checkpoint: its size in bytes and its SHA-256 in hex."""

    model_config = ConfigDict(frozen=True)

    size: int
    sha256: str


class _HashSidecar(BaseModel):
    """Hash and modification time: a file that changed since is hashed again."""

    entry: FileEntry
    mtime_ns: int


@retry_io
def write_hashed(path: Path, parts: Sequence[memoryview]) -> None:
    """Write a file of a checkpoint. A large one is flushed to the disk and hashed meanwhile.

    Args:
        path: in an existing folder; an existing file is replaced.
        parts: the content, C-contiguous bytes that must not change during the call.

    Raises:
        OSError: the disk is full or broken.
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
    sidecar = _HashSidecar(entry=FileEntry(size=size, sha256=sha256), mtime_ns=mtime_ns)
    _sidecar(path).write_text(sidecar.model_dump_json())
    fault_point("checkpoint:file-synced")


def pop_hash_sidecar(path: Path) -> FileEntry | None:
    """The hash from a file's sidecar, if the file did not change since; deletes the sidecar."""
    try:
        known = _HashSidecar.model_validate_json(_sidecar(path).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        known = None
    _sidecar(path).unlink()
    found = path.stat()
    now = found.st_size, found.st_mtime_ns
    return known.entry if known and now == (known.entry.size, known.mtime_ns) else None


def is_hash_sidecar(path: Path) -> bool:
    """Whether a file is a hash sidecar, which is not part of the checkpoint."""
    return path.name.startswith(".") and path.name.endswith(_SIDECAR_SUFFIX)


def hash_file(path: Path) -> FileEntry:
    """Size and SHA-256 of an existing file."""
    with open(path, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
        return FileEntry(size=os.fstat(f.fileno()).st_size, sha256=digest)


def _write(path: Path, parts: Sequence[memoryview]) -> int:
    """Write and flush; returns the modification time in nanoseconds."""
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
    """Start writing the page cache to the disk, so that less is left for the fsync."""
    begin = sync_file_range()
    if begin is not None:
        begin(fd, start, size, _SYNC_FILE_RANGE_WRITE)  # if it fails, the fsync writes everything


@cache
def sync_file_range() -> Any:
    """The Linux system call; None on other systems."""
    with suppress(AttributeError, OSError, TypeError):
        call = ctypes.CDLL(None).sync_file_range
        call.argtypes = ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
        return call
    return None


def _sidecar(path: Path) -> Path:
    return path.with_name(f".{path.name}{_SIDECAR_SUFFIX}")
