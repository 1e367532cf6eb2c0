"""Writes many small files durably, with few waits for the disk."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from results.storage.atomic import (
    ADVICE,
    append,
    durable,
    storage_error,
    temporary,
    write_temporary,
)
from results.storage.fault_injection import fault_point
from search_spaces.errors import UserError

_MANY = 8


def write_together(lines: Mapping[Path, str], contents: Mapping[Path, bytes]) -> None:
    """Append to files, then replace others, as `append_line` and `write_atomic` do with one.

    Nothing is replaced before all lines and contents are on disk. A process that is killed leaves
    some files as they were; none is torn, apart from a last line.

    Args:
        lines: one or more, by the file to which they are appended.
        contents: of the files to replace.

    Raises:
        UserError: an error of the storage that persists; see `ADVICE`.
    """
    files = (*lines, *contents)
    try:
        for path, text in lines.items():
            _append(path, text)
        for path, data in contents.items():
            _write(path, data)
        _sync(lines, map(temporary, contents), many=len(files) > _MANY)
        for path in contents:
            os.replace(temporary(path), path)
            fault_point(f"{path.name}:renamed")
        folders = dict.fromkeys(map(os.path.dirname, files))
        _sync(folders, many=len(folders) > _MANY)
    except (OSError, UserError) as e:
        for path in contents:
            with suppress(OSError):
                os.unlink(temporary(path))
        if isinstance(e, OSError) and e.errno in ADVICE:
            raise storage_error(e) from e
        raise


@durable
def _append(path: Path, lines: str) -> None:
    append(path, lines, sync=False)


@durable
def _write(path: Path, data: bytes) -> None:
    write_temporary(path, data, sync=False)


def _sync(*paths: Iterable[str | Path], many: bool) -> None:
    """Make files or the entries of folders durable; many at once by their file system.

    `syncfs` of Linux takes about as long as `fsync` of a single file.
    """
    whole = many and sys.platform == "linux"
    for path in islice(chain(*paths), 1 if whole else None):
        fd = os.open(path, os.O_RDONLY)
        try:
            if not whole:
                os.fsync(fd)
            elif ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(fd)
