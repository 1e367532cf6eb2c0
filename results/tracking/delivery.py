"""Deliver a sweep folder to a sink in a background thread, so that training never waits for it.

A trial is delivered by reading its files, so a delivery can be repeated at any time. A failed
one is repeated with growing pauses until the session ends, and then by the next session.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from results.records.evaluations import read_evaluations
from results.records.notes import Note, read_notes
from results.records.reports import read_new_reports
from results.records.trial import TrialRecord, read_trial
from results.storage.atomic import write_atomic
from results.storage.fencing import UNFENCED, Fence, OwnershipLostError
from results.tracking.extras import (
    Extras,
    ReadWinner,
    no_winner,
    note_tags,
    read_averages,
    read_extras,
)
from results.tracking.mlflow.runs import Runs
from results.tracking.tracker import Ending, SweepFacts, Tracker
from search_spaces.errors import UserError, quantity, short_reason
from search_spaces.files import parse_json, read_regular
from search_spaces.redaction import redact


class Delivered:
    """What was delivered to the sweep's run. A lost file costs queries to the sink, no data."""

    def __init__(self, paths: SweepPaths) -> None:
        self._paths = paths
        raw = self._load()
        self._trials: dict[str, str] = raw.get("trials", {})
        self._run: str | None = raw.get("run")
        self.ending: Ending | None = raw.get("ending")
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
            except (OSError, UserError) as e:
                log.warning("%s: cannot be written (%s)", self._paths.delivered, short_reason(e))

    def _load(self) -> dict[str, Any]:
        try:
            raw = parse_json(read_regular(self._paths.delivered))
            ending = raw.get("ending")
            raw["ending"] = Ending(**ending) if ending else None
            return raw if isinstance(raw["trials"], dict) else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def _version(record: TrialRecord, note: Note | None) -> str:
    """Changes with every change of a trial that has ended, and of its note."""
    text = f"{record.state} {len(record.attempts)} {record.end_step}"
    return f"{text} {zlib.crc32(repr(note).encode()):08x}" if note else text


log = logging.getLogger(__name__)

_BATCH_S = 0.5
"""Seconds for which changes are collected, so that reports are sent together."""
_LONGEST_PAUSE_S = 30.0
_LAST_TRIES = 3
"""Attempts after the session has ended."""


def mlflow_tracker(
    paths: SweepPaths,
    uri: str,
    artifact_root: Path | None,
    experiment: str,
    facts: SweepFacts,
    fence: Fence = UNFENCED,
    winner: ReadWinner = no_winner,
) -> Delivery:
    """Delivery of a sweep to MLflow; for the arguments see `results.tracking.mlflow.runs.Runs`."""
    open_runs = partial(Runs, uri, artifact_root, experiment, facts, fence)
    return Delivery(paths, open_runs, f"MLflow at {redact(uri)}", fence, winner)


class Delivery(Tracker):
    """A `Tracker` that delivers what its sink does not have yet.

    Args:
        open_sink: creates the sink, in the thread; called again after each failure. Calls of it may
            repeat what was delivered before, which it stores once, and may raise anything.
        name: of the sink, for messages.
        fence: checked before writes; after an `OwnershipLostError` nothing more is delivered.
        winner: whose model is logged when the sweep is done.
    """

    def __init__(
        self,
        paths: SweepPaths,
        open_sink: Callable[[], Runs],
        name: str,
        fence: Fence = UNFENCED,
        winner: ReadWinner = no_winner,
    ) -> None:
        self._paths, self._open_sink, self._name = paths, open_sink, name
        self._winner = winner
        self._fence = fence
        self._delivered = Delivered(paths)
        self._sink: Runs | None = None
        self._positions: dict[str, int] = {}
        self._notes: dict[str, Note] = {}
        self._pending = set(paths.trial_ids())
        self._ending: Ending | None = None
        self._has_ended = self._is_abandoned = False
        self._error = ""
        self._lock = threading.Lock()
        self._work, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"track {name}", daemon=True)

    @property
    def last_ending(self) -> Ending:
        """How the newest session ended; KILLED if it left no record of that."""
        return self._delivered.ending or Ending("KILLED", {})

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """See `Tracker`. The thread starts with the first report: imports delay the first trial."""
        with self._lock:
            self._pending.add(trial_id)
        if reported or self._thread.ident is not None:
            self._wake()

    def close(self, ending: Ending, timeout: float) -> str | None:
        """See `Tracker`."""
        self._ending = self._delivered.ending = ending
        self._save()
        self._closing.set()
        self._wake()
        self._thread.join(timeout)
        self._is_abandoned = True
        if self._has_ended:
            return None
        what = quantity(len(self._pending), "trial") if self._pending else "the sweep's end"
        reason = f" ({self._error})" if self._error else ""
        return f"{self._name}: {what} not delivered yet{reason}"

    def _wake(self) -> None:
        self._work.set()
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        pause, last_tries = _BATCH_S, 0
        while not self._has_ended and not self._is_abandoned:
            self._work.wait()
            self._work.clear()
            self._closing.wait(pause)
            if self.deliver_pending():
                pause = _BATCH_S
                continue
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            self._work.set()
            if self._closing.is_set():
                last_tries += 1
                if last_tries == _LAST_TRIES:
                    return
                time.sleep(last_tries)

    def deliver_pending(self) -> bool:
        """Deliver every change, and the end of the session if it has ended.

        The background thread calls this; another caller must not use the thread as well.

        Returns:
            False when something failed and has to be delivered again.
        """
        ending = self._ending  # before the trials: one that comes meanwhile may bring some more
        try:
            if self._error and ending is not None:
                self._sink = None  # what timed out may have come late: a new one finds it
            self._sink = self._sink or self._open_bound()
            self._notes = read_notes(self._paths)
            if ending is not None:
                self._pending |= self._notes.keys() & set(self._paths.trial_ids())
            for trial_id in sorted(self._pending):
                if self._is_abandoned:
                    return False
                self._deliver(self._sink, trial_id)
            if ending is not None:
                self._deliver_end(self._sink, ending)
        except OwnershipLostError as e:  # the sweep's new owner delivers the rest
            self._is_abandoned = True
            self._on_failed(e)
            return False
        except Exception as e:  # noqa: BLE001 - whatever a sink raises, training continues
            self._on_failed(e)
            return False
        finally:
            self._save()
        return True

    def _deliver_end(self, sink: Runs, ending: Ending) -> None:
        for average in read_averages(self._paths):
            sink.average(average)
        for evaluation in read_evaluations(self._paths):
            sink.evaluation(evaluation)
        if (note := self._notes.get("")) is not None:
            sink.tag(note_tags(note))
        sink.end(ending)
        if ending.status == "FINISHED" and (winner := self._winner()) is not None:
            sink.log_model(winner)
        self._has_ended = True

    def _open_bound(self) -> Runs:
        sink = self._open_sink()
        self._delivered.bind(sink.run_id)
        return sink

    def _save(self) -> None:
        with contextlib.suppress(OwnershipLostError):  # another driver owns the file now
            self._fence.check()
            self._delivered.save()

    def _deliver(self, sink: Runs, trial_id: str) -> None:
        with self._lock:
            self._pending.discard(trial_id)
        files = self._paths.trial(trial_id)
        try:
            record = read_trial(files)
        except UserError:  # damaged: the driver and `tune show` report it
            return
        note = self._notes.get(trial_id)
        if self._delivered.has(record, note):
            return
        position = self._positions.get(trial_id, 0)
        try:
            new, position = read_new_reports(files, position, record.end_step)
            extras = Extras() if record.state.active else read_extras(files, record)
            sink.update(record, new, replace(extras, tags={**extras.tags, **note_tags(note)}))
        except Exception:
            with self._lock:
                self._pending.add(trial_id)
            raise
        self._positions[trial_id] = position
        self._delivered.add(record, note)

    def _on_failed(self, error: Exception) -> None:
        # it is unknown how much of the last call it stored: a new one queries that
        self._sink = None
        self._positions.clear()
        lines = str(error).splitlines() or [""]
        text = redact(f"{type(error).__name__}: {lines[0]}")
        if not self._error and not self._is_abandoned:
            begun = "training continues, and " if self._ending is None else ""
            log.warning("%s: %s; %sdelivery is retried", self._name, text, begun)
        self._error = text
