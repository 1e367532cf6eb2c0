"""Optuna's journal file, with one write for a batch of entries.

Optuna locks, writes and syncs once per value of a curve and per parameter of a proposal: tens of
syncs per trial, during which the driver cannot respond.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from results.storage.fault_injection import fault_point
from search_spaces.files import read_regular


class Journal(JournalFileBackend):
    """The journal of a study with a single writer, the sweep's driver.

    If the writer was killed, opening the journal cuts its torn last line and removes its lock.
    """

    def __init__(self, path: Path) -> None:
        _drop_torn_line(path)
        path.with_name(path.name + ".lock").unlink(missing_ok=True)
        super().__init__(str(path), lock_obj=JournalFileOpenLock(str(path)))
        self._pending: list[dict[str, Any]] | None = None
        self._first: int | None = None

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Write the entries that the block appends in one go when it ends.

        Reads inside the block see these entries. An inner block is written with the outer one.
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
                self._write(held)
            if held and self._first is not None:  # the next reader then starts at this offset
                deque(super().read_logs(self._first), maxlen=0)
                self._forget_offsets(self._first)

    def _forget_offsets(self, read: int) -> None:
        """Drop the offsets of entries that were read; Optuna keeps them, but never uses them."""
        for number in [n for n in self.offsets if 0 < n < read]:
            del self.offsets[number]

    @property
    def offsets(self) -> dict[int, int]:
        """Number of an entry to its byte offset in the file, as far as it is remembered."""
        return self._log_number_offset

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append log entries, one per line."""
        if self._pending is None:
            self._write(logs)
        else:
            self._pending += logs

    def _write(self, logs: list[dict[str, Any]]) -> None:
        super().append_logs(logs)
        fault_point("study.journal:written")

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the entries from a number on; inside a batch, only those of the batch are new."""
        if self._pending is None:
            yield from super().read_logs(log_number_from)
            return
        if self._first is None:
            self._first = log_number_from
        yield from self._pending[log_number_from - self._first :]


def _drop_torn_line(path: Path) -> None:
    """Cut the text after the last newline, to which Optuna would append."""
    if path.exists():
        os.truncate(path, read_regular(path).rfind(b"\n") + 1)
