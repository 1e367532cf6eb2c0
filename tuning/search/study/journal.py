"""Optuna's journal file, with one write for a batch of entries.

Optuna locks, writes and syncs once per value of a curve and per parameter of a proposal: tens of
syncs per trial, during which the driver cannot respond.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator
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
        self._path = path
        self._pending: list[dict[str, Any]] | None = None
        self._first: int | None = None
        self._read = 0

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
            if held and self._first is not None:
                self._begin_reads_at(self._read, held[self._read - self._first :])

    def _begin_reads_at(self, number: int, unread: Iterable[dict[str, Any]]) -> None:
        """Remember where the first entry is that was not read, and forget the others.

        Optuna keeps the offsets of all entries, but never uses them.
        """
        rest = sum(len(json.dumps(entry, separators=(",", ":"))) + 1 for entry in unread)
        self.offsets.clear()
        self.offsets.update({0: 0, number: os.path.getsize(self._path) - rest})

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
        """Yield the entries from a number on. A batch reads the file once: it stays as it is."""
        if self._pending is None:
            yield from super().read_logs(log_number_from)
            return
        if self._first is None:  # the file may have entries that were not read yet
            known = list(super().read_logs(log_number_from))
            self._first = log_number_from + len(known)
            yield from known
        self._read = self._first + len(self._pending)
        yield from self._pending[max(0, log_number_from - self._first) :]


def _drop_torn_line(path: Path) -> None:
    """Cut the text after the last newline, to which Optuna would append."""
    if path.exists():
        os.truncate(path, read_regular(path).rfind(b"\n") + 1)
