"""Retries of storage that fails for a moment."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from results.storage import retry
from results.storage.atomic import append_line, read_lines, write_atomic
from search_spaces.errors import UserError

Flaky = Callable[[int, int], list[int]]


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Flaky:
    """Make the next fsyncs fail with an error number; returns the calls."""
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    fsync = os.fsync

    def arm(times: int, number: int) -> list[int]:
        calls: list[int] = []

        def failing(fd: int) -> None:
            calls.append(fd)
            if len(calls) <= times:
                raise OSError(number, os.strerror(number))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", failing)
        return calls

    return arm


@pytest.mark.parametrize("number", sorted(retry.TRANSIENT))
def test_write_retries_transient_errors(tmp_path: Path, flaky: Flaky, number: int) -> None:
    flaky(retry.TRIES - 1, number)
    write_atomic(tmp_path / "a.json", b"whole")
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def test_append_line_survives_transient_errors(tmp_path: Path, flaky: Flaky) -> None:
    flaky(2, errno.EIO)
    append_line(tmp_path / "lines", '{"step": 1}')
    assert list(read_lines(tmp_path / "lines")) == [{"step": 1}]


@pytest.mark.parametrize(
    ("number", "error", "message", "tries"),
    [
        (errno.ETIMEDOUT, OSError, "timed out", retry.TRIES),
        (errno.EIO, UserError, "a: Input/output error for 5 bytes; check the disk", retry.TRIES),
        (errno.ENOSPC, UserError, "a: No space .* without quotas.; free some space, then run", 1),
        (errno.EROFS, UserError, "a: Read-only file system .*; mount it for writing, then run", 1),
        (errno.EACCES, UserError, "a: Permission denied .*; give this user access to it, then", 1),
        (errno.EMFILE, UserError, r"a: Too many open files .*\(ulimit -n\), then run", 1),
    ],
)
def test_write_raises_an_error_that_persists(
    tmp_path: Path, flaky: Flaky, number: int, error: type[Exception], message: str, tries: int
) -> None:
    calls = flaky(100, number)
    with pytest.raises(error, match=message):
        write_atomic(tmp_path / "a", b"whole")
    assert len(calls) == tries
    assert list(tmp_path.iterdir()) == []
