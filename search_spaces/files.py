"""Reads files that a person or a fault may have replaced by something else."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

_LARGEST = 4 * 2**30
"""Bytes. A trial of ten million reports has half of it."""


def read_regular(path: Path | str, start: int = 0, size: int = -1) -> bytes:
    """The content of a file from a byte on; never waits, as opening a named pipe would.

    Args:
        path: of the file.
        start: offset of the first byte.
        size: largest number of bytes to read; -1: all.

    Raises:
        OSError: it is missing, a loop of links, not a regular file, or larger than a record can be.
    """
    # half the time of `open`: a sweep has thousands of small files
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if size < 0 and found.st_size - start > _LARGEST:
            raise OSError(errno.EINVAL, f"too large: {found.st_size} bytes", str(path))
        return _read(file, start, size, found.st_size)
    finally:
        os.close(file)


def _read(file: int, start: int, size: int, likely: int) -> bytes:
    """Read `size` bytes, or all: a file may be larger than its `likely` size, if it grows."""
    data = b""
    while len(data) != size:
        wanted = size - len(data) if size >= 0 else max(likely - start - len(data), 4096)
        piece = os.pread(file, wanted, start + len(data))
        if not piece:
            break
        data = data + piece if data else piece
    return data


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_text_json(data: bytes) -> Any:
    """The value of a JSON text whose strings can all be written as UTF-8.

    Raises:
        ValueError: it is not JSON in UTF-8, or an escape in it stands for half of a character.
    """
    value = parse_json(data.decode().removeprefix("\ufeff"))
    if b"\\ud" in data or b"\\uD" in data:
        json.dumps(value, ensure_ascii=False).encode()
    return value
