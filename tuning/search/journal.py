"""Optuna's journal file, written once for what belongs together.

Optuna writes, locks and syncs a line for each value of a curve and each parameter of a proposal:
tens of syncs a trial, during which the driver answers nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock


class Journal(JournalFileBackend):
    """The journal of a study that only one process writes to: the sweep's driver.

    A writer that was killed leaves a torn last line, which is cut, and its lock, which is broken.
    """

    def __init__(self, path: Path) -> None:
        _drop_torn_line(path)
        path.with_name(path.name + ".lock").unlink(missing_ok=True)
        super().__init__(str(path), lock_obj=JournalFileOpenLock(str(path)))
        self._pending: list[dict[str, Any]] | None = None
        self._first: int | None = None

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Write what the block appends when it ends, at once; the block reads it all the same.

        A block within another is written with it.
        """
        if self._pending is not None:
            yield
            return
        self._pending, self._first = [], None
        try:
            yield
        finally:
            held, self._pending = self._pending, None
            if held:
                super().append_logs(held)
            if self._first is not None:  # so that the next reader need not look for the place
                deque(super().read_logs(self._first), maxlen=0)
                self._forget_offsets(self._first)

    def _forget_offsets(self, read: int) -> None:
        """Optuna keeps the place of every entry; nobody reads those again that were read."""
        for number in [n for n in self.offsets if 0 < n < read]:
            del self.offsets[number]

    @property
    def offsets(self) -> dict[int, int]:
        """Positions in the file that are remembered: number of an entry to its byte offset."""
        return self._log_number_offset

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append log entries, one a line."""
        if self._pending is None:
            super().append_logs(logs)
        else:
            self._pending += logs

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Entries from a number on. Those held back follow all that was read when they came."""
        if not self._pending:
            yield from super().read_logs(log_number_from)
            return
        if self._first is None:
            self._first = log_number_from
        yield from self._pending[log_number_from - self._first :]


def _drop_torn_line(path: Path) -> None:
    """Cut what a killed writer left after the last newline: Optuna would append to it."""
    if path.exists():
        with open(path, "r+b") as f:
            f.truncate(f.read().rfind(b"\n") + 1)
