"""Errors of stdout and stderr: none is an error of the storage, and none ends a running sweep."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from search_spaces.errors import UserError

_SESSIONS = ("run", "resume")
"""Commands whose work goes on when nothing can be printed."""


@contextmanager
def guarded_output(command: str | None) -> Iterator[None]:
    """Let stdout and stderr handle their own errors, and escape what their encoding lacks.

    Args:
        command: the command of this process. A session goes on without stdout; any other command
            ends at the first failed write, silently if the reader of a pipe has left.

    Raises:
        UserError: stdout cannot be written, in a command that ends by that.
        BrokenPipeError: the reader has left, likewise.
    """
    before = sys.stdout, sys.stderr
    if sys.stdout is not None and sys.stderr is not None:  # None: closed when the process began
        sys.stdout = _guard(sys.stdout, _mention if command in _SESSIONS else None)
        sys.stderr = _guard(sys.stderr, lambda problem: None)
    try:
        yield
    finally:
        guarded, (sys.stdout, sys.stderr) = sys.stdout, before
        if guarded is not None:
            with suppress(BrokenPipeError):  # Rich or Typer has ended the command
                guarded.flush()


def _guard(stream: TextIO, mention: Callable[[str], object] | None) -> TextIO:
    if hasattr(stream, "reconfigure") and stream.encoding.lower() not in ("utf-8", "utf8"):
        stream.reconfigure(errors="backslashreplace")
    guarded: Any = _GuardedStream(stream, mention)
    return guarded  # type: ignore[no-any-return]


def _mention(problem: str) -> None:
    sys.stderr.write(f"{problem}; the sweep goes on, and tune attach shows it\n")


class _GuardedStream:
    """A text stream that goes to the null device after its first failed write.

    Args:
        stream: has a file descriptor.
        mention: called with the problem, once; None if each use from then on raises it.
    """

    def __init__(self, stream: TextIO, mention: Callable[[str], object] | None) -> None:
        self._stream, self._mention = stream, mention
        self._error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._use(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._use(self._stream.flush)

    def _use(self, use: Callable[[], object]) -> None:
        try:
            use()
        except OSError as e:
            self._redirect(e)
        if self._error is not None and self._mention is None:  # Typer drops the first one it meets
            if self._error.errno == errno.EPIPE:
                raise self._error
            raise UserError(f"{_problem(self._error)}; what the command prints is lost")

    def _redirect(self, error: OSError) -> None:
        # Python keeps what it could not write, and tries again when the process ends
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)
        self._error = error
        if self._mention is not None:
            self._mention(_problem(error))


def _problem(error: OSError) -> str:
    return f"stdout: {os.strerror(error.errno or errno.EIO)}"
