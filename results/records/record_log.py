"""`records.jsonl`: two lines for every write of a record, with its checksum.

A record that is missing, changed, of another sweep or older than its last line is noticed. One line
is written before the record and one after it; those of a batch of records before and after all of
them. If the second one is missing, the record may be the one before: the writer was killed in
between.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from results.paths import SweepPaths
from results.storage.atomic import append_line, open_private, write_atomic
from results.storage.batch import write_together
from search_spaces.checksum import add_json_checksum
from search_spaces.errors import UserError
from search_spaces.files import read_regular

_LINE = re.compile(
    rb'({"file": "([\x20-\x7e]+)", "checksum": "([0-9a-f]*)"),"crc32":"([0-9a-f]{8})"}'
)


@dataclass
class RecordLog:
    """The lines of a `records.jsonl`.

    Attributes:
        writes: checksums of each file's contents, oldest first, by its path in the sweep folder;
            empty where the file was missing.
        open: paths whose last write has one line only.
    """

    writes: dict[str, list[str]] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)

    def add(self, name: str, checksum: str) -> None:
        """Add a line."""
        second = name in self.open and self.writes[name][-1] == checksum
        (self.open.discard if second else self.open.add)(name)
        self.writes.setdefault(name, []).append(checksum)

    def is_last(self, name: str, data: bytes | None) -> bool:
        """Whether a file has the content of its last line.

        Args:
            name: path of the file in the sweep folder.
            data: its content; None if it is missing.
        """
        return self._of(name)[-1] == _checksum(data)

    def is_current(self, name: str, data: bytes | None) -> bool:
        """Whether a file has the content of its last line, or may be like this after a kill."""
        return self.is_last(name, data) or (
            name in self.open and self._of(name)[-2] == _checksum(data)
        )

    def is_older(self, name: str, data: bytes) -> bool:
        """Whether a file has the content of an earlier line, and no kill explains it."""
        return not self.is_current(name, data) and _checksum(data) in self._of(name)

    def _of(self, name: str) -> list[str]:
        return ["", *self.writes.get(name, ())]


def write_logged(paths: SweepPaths, file: Path, data: bytes) -> None:
    """Replace a record atomically, and log it; if that fails, log the content that stays."""
    line = _line(paths, file, data)
    append_line(paths.record_log, line)
    try:
        write_atomic(file, data)
    except (OSError, UserError):
        with suppress(OSError, UserError):
            kept = read_regular(file) if file.is_file() else None
            append_line(paths.record_log, _line(paths, file, kept))
        raise
    _append_unsynced(paths, line)


def remove_logged(paths: SweepPaths, file: Path) -> None:
    """Remove a record that may be there, and log that it is missing."""
    if file.exists():
        line = _line(paths, file, None)
        append_line(paths.record_log, line)
        file.unlink()
        _append_unsynced(paths, line)


def write_logged_together(
    paths: SweepPaths, lines: Mapping[Path, str], records: Mapping[Path, bytes]
) -> None:
    """Replace and log records together; lines are appended to other files before.

    The log is durable when a record is replaced.
    """
    logged = "\n".join(_line(paths, file, data) for file, data in records.items())
    write_together({**lines, paths.record_log: logged} if records else lines, records)
    if records:
        _append_unsynced(paths, logged)


def _append_unsynced(paths: SweepPaths, lines: str) -> None:
    """Without these lines, more is tolerated."""
    with suppress(OSError), open(paths.record_log, "a", opener=open_private) as f:
        f.write(f"{lines}\n")


def read_record_log(paths: SweepPaths) -> RecordLog | None:
    """The log of a sweep; None if it has none, as in sweeps of older versions.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = read_regular(paths.record_log)
    except FileNotFoundError:
        return None
    log = RecordLog()
    for line in data.split(b"\n"):
        found = _LINE.fullmatch(line)
        if found and zlib.crc32(found[1]) == int(found[4], 16):  # else it is torn
            log.add(found[2].decode(), found[3].decode())
    return log


def log_current(paths: SweepPaths, files: Iterable[Path]) -> None:
    """Append a line for each file's present content: from then on, no other one is accepted."""
    lines = [_line(paths, file, read_regular(file)) for file in files if file.is_file()]
    if lines:
        append_line(paths.record_log, "\n".join([*lines, *lines]))


def _line(paths: SweepPaths, file: Path, data: bytes | None) -> str:
    name = logged_name(paths, file)
    return add_json_checksum(json.dumps({"file": name, "checksum": _checksum(data)}))


def logged_name(paths: SweepPaths, file: Path) -> str:
    """The path of a file in the sweep folder, as the lines have it."""
    return str(file).removeprefix(f"{paths.root}/")


def _checksum(data: bytes | None) -> str:
    return "" if data is None else f"{zlib.crc32(data):08x}"
