"""`records.jsonl`: one line for every write of a record, with its checksum.

A record that is missing, changed, of another sweep or older than its last line is noticed. The line
is written first: after a kill, the record of the very last line may be the one before.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from results.paths import SweepPaths
from results.storage.atomic import append_line, parse_lines
from search_spaces.checksum import add_json_checksum
from search_spaces.files import read_regular


@dataclass
class RecordLog:
    """The lines of a `records.jsonl`.

    Attributes:
        writes: checksums of each file's contents, oldest first, by its path in the sweep folder.
        newest: the path in the last line.
    """

    writes: dict[str, list[str]] = field(default_factory=dict)
    newest: str | None = None

    def is_current(self, name: str, data: bytes | None) -> bool:
        """Whether a file has the content of its last line, or may have been left like this by a
        kill.

        Args:
            name: path of the file in the sweep folder.
            data: its content; None if it is missing.
        """
        known = self.writes.get(name, [])
        found = None if data is None else _checksum(data)
        if known[-1:] == [found]:
            return True
        return name == self.newest and ([None, *known][-2] == found)


def log_write(paths: SweepPaths, file: Path, data: bytes) -> None:
    """Append the line of a file's new content; call it before the write."""
    append_line(paths.record_log, _line(paths, file, data))


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
    for line in parse_lines(data):
        name, checksum = line.get("file"), line.get("checksum")
        if isinstance(name, str) and isinstance(checksum, str):
            log.writes.setdefault(name, []).append(checksum)
            log.newest = name
    return log


def log_current(paths: SweepPaths, files: Iterable[Path]) -> None:
    """Append a line for each file's present content: from then on, no other one is accepted."""
    lines = [_line(paths, file, read_regular(file)) for file in files if file.is_file()]
    if lines:
        append_line(paths.record_log, "\n".join(lines))


def _line(paths: SweepPaths, file: Path, data: bytes) -> str:
    name = file.relative_to(paths.root).as_posix()
    return add_json_checksum(json.dumps({"file": name, "checksum": _checksum(data)}))


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
