"""`delivered.json`: finished trials that are delivered, and the end of the session."""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import asdict
from typing import Any

from results.paths import SweepPaths
from results.records.notes import Note
from results.records.trial import TrialRecord
from results.storage.atomic import write_atomic
from results.tracking.tracker import Ending
from search_spaces.files import parse_json, read_regular

log = logging.getLogger(__name__)


class Delivered:
    """What was delivered to the sweep's run. A lost file costs queries to the sink, no data."""

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        raw = self._load()
        self._trials: dict[str, str] = raw.get("trials", {})
        self._run: str | None = raw.get("run")
        self.ending = Ending(**raw["ending"]) if raw.get("ending") else None
        self._saved = ""

    def bind(self, run: str) -> None:
        """Forget what was delivered to another run: in a lost database, or of a folder's copy."""
        if run != self._run:
            self._run, self._trials = run, {}

    def has(self, record: TrialRecord, note: Note | None) -> bool:
        """Whether a trial that has ended was delivered in its present state, with its note."""
        return not record.state.active and self._trials.get(record.id) == _version(record, note)

    def add(self, record: TrialRecord, note: Note | None) -> None:
        """Note that a trial was delivered in its present state."""
        if not record.state.active:
            self._trials[record.id] = _version(record, note)

    def save(self) -> None:
        """Write the file if its content changed; a failure is a warning."""
        ending = asdict(self.ending) if self.ending else None
        raw = {"run": self._run, "trials": self._trials, "ending": ending}
        text = json.dumps(raw)
        if text != self._saved:
            try:
                write_atomic(self._paths.delivered, text.encode())
                self._saved = text
            except OSError as e:
                log.warning("%s: cannot be written (%s)", self._paths.delivered, e.strerror)

    def _load(self) -> dict[str, Any]:
        try:
            raw = parse_json(read_regular(self._paths.delivered))
            return raw if isinstance(raw["trials"], dict) else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _version(record: TrialRecord, note: Note | None) -> str:
    """Changes with every change of a trial that has ended, and of its note."""
    text = f"{record.state} {len(record.attempts)} {record.end_step}"
    return f"{text} {zlib.crc32(repr(note).encode()):08x}" if note else text
