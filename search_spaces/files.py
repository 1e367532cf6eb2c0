"""Reads files that a person or a fault may have replaced by something else."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any


def read_regular(path: Path | str, start: int = 0, size: int = -1) -> bytes:
    """The content of a file from a byte on; never waits, as opening a named pipe would.

    Args:
        path: of the file.
        start: offset of the first byte.
        size: largest number of bytes to read; -1: all.

    Raises:
        OSError: it is missing, a loop of links, or not a regular file.
    """
    with open(path, "rb", opener=_without_waiting) as f:
        if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        f.seek(start)
        return f.read(size)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
