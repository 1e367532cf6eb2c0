"""Counts the calls, opened files and syncs of a block: costs that do not depend on the machine."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest


@dataclass
class Cost:
    """Calls of functions (Python's and C's), files opened and fsyncs, in this thread.

    Attributes:
        names: of the files, as often as each was opened.
    """

    calls: int = 0
    opened: int = 0
    synced: int = 0
    names: Counter[str] = field(default_factory=Counter)


_watching: list[Cost] = []
_by_opener: list[object] = []
"""What `open` opens now: if it has an opener, that raises the event again, with no mode."""
_hooked: list[bool] = []


def _audit(event: str, given: Any) -> None:
    if not _watching or event != "open":
        return
    file, mode, _ = given
    again = mode is None and _by_opener == [file]
    _by_opener[:] = [] if mode is None else [file]
    if not again:
        _watching[-1].opened += 1
        _watching[-1].names[str(file)] += 1


@contextmanager
def costs() -> Iterator[Cost]:
    """The cost of the block."""
    if not _hooked:  # a hook stays for good
        sys.addaudithook(_audit)
        _hooked.append(True)
    cost, before = Cost(), sys.getprofile()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        cost.calls += event in ("call", "c_call")

    fsync = os.fsync
    with pytest.MonkeyPatch.context() as patch:

        def counted(fd: int) -> None:
            cost.synced += 1
            fsync(fd)

        patch.setattr(os, "fsync", counted)
        _watching.append(cost)
        sys.setprofile(count)
        try:
            yield cost
        finally:
            sys.setprofile(before)
            _watching.pop()
