"""`delivered.json`: finished trials that are delivered, and the end of the session."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict
from typing import Any

from results.paths import SweepPaths
from results.records.trial import TrialRecord
from results.storage.atomic import write_atomic
from results.tracking.tracker import Ending
from search_spaces.files import parse_json, read_regular

log = logging.getLogger(__name__)


class Delivered:
    """What was delivered to one destination. A lost file costs queries to the sink, no data.

    Args:
        destination: identifies the sink; deliveries to other sinks do not count.
    """

    def __init__(self, paths: SweepPaths, destination: str) -> None:
        self._paths = paths
        self._destination = hashlib.sha256(destination.encode()).hexdigest()[:16]
        self._trials: dict[str, str] = {}
        self.ending: Ending | None = None
        self._saved = ""
        raw = self._load()
        if raw.get("destination") == self._destination:
            self._trials = raw["trials"]
        if raw.get("ending"):
            self.ending = Ending(**raw["ending"])

    def has(self, record: TrialRecord) -> bool:
        """Whether a trial that has ended was delivered in its present state."""
        return not record.state.active and self._trials.get(record.id) == _version(record)

    def add(self, record: TrialRecord) -> None:
        """Note that a trial was delivered in its present state."""
        if not record.state.active:
            self._trials[record.id] = _version(record)

    def save(self) -> None:
        """Write the file if its content changed; a failure is a warning."""
        ending = asdict(self.ending) if self.ending else None
        raw = {"destination": self._destination, "trials": self._trials, "ending": ending}
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


def _version(record: TrialRecord) -> str:
    """Changes with every change of a trial that has ended."""
    return f"{record.state} {len(record.attempts)} {record.end_step}"
