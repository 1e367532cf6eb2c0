"""Writes Ray's own messages into the sweep folder.

Ray prints what its processes publish: the end of a raylet's log when a machine is lost, or that it
started many processes. The session says what it means for the sweep; the rest is for a bug report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.storage.atomic import open_private
from search_spaces.redaction import redact

_PRINT = "print_to_stdstream"
"""The function by which Ray's listener prints; there is no setting for it."""


@contextmanager
def ray_messages_to(file: Path) -> Iterator[None]:
    """Append Ray's messages to a file, not to the terminal, while the block runs."""
    from ray._private import worker

    def write(data: dict[str, Any], ignore_prefix: bool) -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(file, "a", opener=open_private) as f:
            f.writelines(f"{redact(line)}\n" for line in data["lines"])

    before = worker.print_to_stdstream
    setattr(worker, _PRINT, write)
    try:
        yield
    finally:
        setattr(worker, _PRINT, before)
