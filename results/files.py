"""Writing files so that a reader never sees half of one, whenever the writer dies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results.faultpoints import reached
from results.steady import steady
from search_spaces.seal import is_whole_json


@steady
def fsync_dir(folder: Path) -> None:
    """Make the entries of a folder (renames, new files) durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@steady
def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file's content: temporary file, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(tmp, "wb", opener=_private) as f:
        f.write(data)
        f.flush()
        reached(f"{path.name}:written")
        os.fsync(f.fileno())
    reached(f"{path.name}:synced")
    os.replace(tmp, path)
    reached(f"{path.name}:renamed")
    fsync_dir(path.parent)
    reached(f"{path.name}:durable")


@steady
def append_line(path: Path, line: str) -> None:
    """Append one line durably, on a line of its own even after a torn one.

    A writer that died in mid-line leaves no newline; the next append starts a new line, so that
    only the torn one is lost.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path, "a+b", opener=_private) as f:
        end = f.seek(0, os.SEEK_END)
        torn = False
        if end:
            f.seek(end - 1)
            torn = f.read(1) != b"\n"
        f.write(b"\n" * torn + line.encode() + b"\n")
        f.flush()
        reached(f"{path.name}:written")
        os.fsync(f.fileno())
    reached(f"{path.name}:durable")


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
        if isinstance(value, dict) and is_whole_json(line):
            yield value


def _private(path: str, flags: int) -> int:
    """Opens a file that is the user's alone when it is new."""
    return os.open(path, flags, 0o600)
