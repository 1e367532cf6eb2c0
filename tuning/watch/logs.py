"""Reads what trials print, also while they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from results.paths import SweepPaths
from search_spaces.files import read_regular

_CHUNK = 2**20


@dataclass
class LogTail:
    """The new lines of the logs of a sweep's trials, each time that it is asked.

    Args:
        paths: of the sweep.
        trial: only of this trial; None: of all.
        rank: only of this rank; None: of all.
        tail: begin so many bytes before the end of each file; None: at its start.
    """

    paths: SweepPaths
    trial: str | None = None
    rank: int | None = None
    tail: int | None = None
    _positions: dict[Path, int] = field(default_factory=dict)

    def lines(self, *, rest: bool = False) -> Iterator[tuple[str, int, str]]:
        """The trial, the rank, and a line, for each new line of the newest attempts.

        Args:
            rest: also the last line of a file, if its end is missing.
        """
        for trial_id in [self.trial] if self.trial else self.paths.trial_ids():
            files = self.paths.trial(trial_id)
            for rank, log in files.rank_logs():
                if self.rank in (None, rank):
                    for line in self._new_lines(log, rest):
                        yield trial_id, rank, line

    def _new_lines(self, log: Path, rest: bool) -> Iterator[str]:
        start = 0 if self.tail is None else max(0, log.stat().st_size - self.tail)
        while True:
            at = self._positions.setdefault(log, start)
            data = read_regular(log, at, _CHUNK)
            whole = data.rfind(b"\n") + 1
            if not whole and (rest or len(data) == _CHUNK):
                whole = len(data)  # the last line, or one that is longer than a chunk
            if not whole:
                return
            self._positions[log] = at + whole
            for line in data[:whole].removesuffix(b"\n").split(b"\n"):
                # a progress bar writes one line again and again
                yield line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
