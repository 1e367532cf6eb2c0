"""Follows a sweep by its records: observers learn what happens in another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from results.paths import SweepPaths
from results.records.reports import read_new_reports
from results.records.spec_file import read_spec
from results.records.trial import Report, TrialRecord, TrialState, read_trial
from results.sweep_folder.folder import read_state, total_elapsed_s
from results.tracking import Ending
from search_spaces.errors import UserError
from tuning.controller.events import SessionStart, SweepEvents

POLL_S = 0.5


@dataclass
class _Seen:
    """The part of a trial's records that the observer knows.

    Attributes:
        record: as it was read last.
        written: when that record was written, in ns.
        position: bytes of `reports.jsonl` that have been read.
    """

    record: TrialRecord | None = None
    written: int = 0
    position: int = 0


class RecordReader:
    """Reads what is new in a sweep's records, each time that it is asked; only what has grown."""

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        self._seen: dict[str, _Seen] = {}

    def changes(self) -> list[tuple[TrialRecord | None, TrialRecord, list[Report]]]:
        """Of each trial that changed: its record before, its record now, and its new reports."""
        found = []
        for trial_id in self._paths.trial_ids():
            with suppress(UserError, FileNotFoundError):  # damaged: `tune show` says so
                found += self._change(trial_id, self._seen.setdefault(trial_id, _Seen()))
        return found

    def _change(
        self, trial_id: str, seen: _Seen
    ) -> list[tuple[TrialRecord | None, TrialRecord, list[Report]]]:
        files, before = self._paths.trial(trial_id), seen.record
        written = files.record.stat().st_mtime_ns
        if before is not None and written == seen.written and not before.state.active:
            return []
        # the record first: all reports of a trial that has ended are in the file by then
        record = read_trial(files)
        reports, seen.position = read_new_reports(files, seen.position, record.end_step)
        seen.record, seen.written = record, written
        return [(before, record, reports)] if reports or record != before else []


class Follower:
    """Notifies an observer of what is new in a sweep's records.

    Of the events of a session it sends those of trials, the start and the end. A trial that starts
    and ends between two looks sends both events.

    Args:
        paths: of the sweep.
        observer: is notified in the thread that calls `follow`.
    """

    def __init__(self, paths: SweepPaths, observer: SweepEvents) -> None:
        self._paths, self._observer = paths, observer
        self._reader = RecordReader(paths)

    def begin(self) -> None:
        """Send the start, with everything that has happened so far."""
        history = [(r, reports) for _, r, reports in self._reader.changes()]
        spec, spent = read_spec(self._paths), total_elapsed_s(self._paths)
        self._observer.session_started(SessionStart(self._paths, spec, spent, history))

    def follow(
        self, runs: Callable[[], bool], pause: Callable[[float], object] = time.sleep
    ) -> None:
        """Send events while the sweep runs, then the end."""
        while runs():
            self.poll()
            pause(POLL_S)
        self.poll()
        status = "FINISHED" if read_state(self._paths).ended else "KILLED"
        self._observer.session_ended(Ending(status, {}))

    def poll(self) -> None:
        """Send what is new since the last call."""
        for before, record, reports in self._reader.changes():
            began = len(record.attempts) > (len(before.attempts) if before else 0)
            if began:
                self._observer.trial_started(record)
            for report in reports:
                self._observer.trial_reported(record, report)
            ran = began or (before is not None and before.state is TrialState.RUNNING)
            if ran and record.state is not TrialState.RUNNING:
                self._observer.trial_ended(record)
