"""Limits of a sweep file: strict for a user's file, wide for the file of a sweep that has begun.

An earlier version may have accepted what is refused today, and its sweeps stay readable. Their
files are bounded in time, so that one folder cannot stop a command that reads many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import thread_time

WIDER, SECONDS = 100, 20.0
"""How much higher the limits of a sweep folder's file are, and the time to read it (seconds of
processor time)."""
_deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


class TooSlowError(Exception):
    """A file of a sweep folder takes more than `SECONDS` to read."""


@contextmanager
def wide_limits() -> Iterator[None]:
    """Read the file of a sweep folder."""
    token = _deadline.set(thread_time() + SECONDS)
    try:
        yield
    finally:
        _deadline.reset(token)


def limit(strict: float, wide: float | None = None) -> float:
    """The limit that applies now.

    Args:
        strict: of a user's file.
        wide: of a sweep folder's file; default: `WIDER` times as much.

    Raises:
        TooSlowError: reading takes too long.
    """
    if _deadline.get() is None:
        return strict
    check_time()
    return strict * WIDER if wide is None else wide


def check_time() -> None:
    """End the reading of a sweep folder's file that takes too long.

    Raises:
        TooSlowError: it does.
    """
    deadline = _deadline.get()
    if deadline is not None and thread_time() > deadline:
        raise TooSlowError
