"""Delivers a sweep folder to a tracker in a thread of its own, so that training never waits.

The folder is the outbox: a trial is delivered by reading its files, as often as it takes. What
fails is tried again, with growing pauses, until the session ends; then by the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from results.paths import SweepPaths
from results.records.trial import Report, ReportTail, TrialRecord, read_trial
from results.storage.atomic import write_atomic
from results.storage.fencing import Fence, NullFence, OwnershipLostError
from results.tracking.averages import Average, averages
from results.tracking.extras import Extras, extras
from results.tracking.tracker import Ending, SweepFacts
from search_spaces.errors import UserError
from search_spaces.redaction import redact

log = logging.getLogger(__name__)

_GATHER_S = 0.5
"""Seconds for which changes are gathered, so that reports can be sent together."""
_LONGEST_PAUSE_S = 30.0
_LAST_TRIES = 3
UNFENCED = NullFence()


class Sink(Protocol):
    """Where a sweep is delivered. Methods run in the background thread and may raise anything;
    whatever they are told again they do not repeat."""

    def update(self, record: TrialRecord, reports: list[Report], extras: Extras) -> None:
        """Bring a trial up to date; `reports` are those that may be new."""

    def average(self, made: Average) -> None:
        """Bring an average of weights up to date."""

    def end(self, ending: Ending) -> None:
        """The session is over."""


def mlflow_tracker(
    paths: SweepPaths,
    uri: str,
    artifact_root: Path | None,
    experiment: str,
    facts: SweepFacts,
    fence: Fence = UNFENCED,
) -> Delivery:
    """Delivery of a sweep to MLflow; arguments as of `results.tracking.runs.Runs`."""

    def open_runs() -> Sink:
        from results.tracking.runs import Runs

        return Runs(uri, artifact_root, experiment, facts, fence)

    return Delivery(paths, open_runs, f"MLflow at {redact(uri)}", f"{uri} {experiment}", fence)


class Delivery:
    """A `Tracker`: everything in the sweep folder that its sink has not got yet.

    Args:
        paths: of the sweep.
        open_sink: makes the sink, in the thread; again after each failure.
        name: of the sink, for messages.
        destination: tells sinks apart: what one has got, another has not.
        tenure: of who delivers; a sink that finds it lost raises `OwnershipLostError`, and that is the end.
    """

    def __init__(
        self,
        paths: SweepPaths,
        open_sink: Callable[[], Sink],
        name: str,
        destination: str,
        fence: Fence = UNFENCED,
    ) -> None:
        self._paths, self._open, self._name = paths, open_sink, name
        self._tenure = fence
        self._ledger = _Ledger(paths, destination)
        self._sink: Sink | None = None
        self._tails: dict[str, ReportTail] = {}
        self._waiting = set(paths.trial_ids())
        self._ending: Ending | None = None
        self._ended = self._abandoned = False
        self._error = ""
        self._lock = threading.Lock()
        self._work, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"track {name}", daemon=True)

    @property
    def last_ending(self) -> Ending:
        """How the newest session ended; one that was killed could not say."""
        return self._ledger.ending or Ending("KILLED", {})

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """See `Tracker`. Begins with the first report: imports would delay the first trial."""
        with self._lock:
            self._waiting.add(trial_id)
        if reported or self._thread.ident is not None:
            self._wake()

    def close(self, ending: Ending, timeout: float) -> str | None:
        """See `Tracker`."""
        self._ending = self._ledger.ending = ending
        self._save()
        self._closing.set()
        self._wake()
        self._thread.join(timeout)
        self._abandoned = True
        if self._ended:
            return None
        trials = len(self._waiting)
        what = f"{trials} trial{'s' * (trials != 1)}" if trials else "the sweep's end"
        said = f" ({self._error})" if self._error else ""
        return f"{self._name}: {what} not delivered yet{said}"

    def _wake(self) -> None:
        self._work.set()
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        pause, last_tries = _GATHER_S, 0
        while not self._ended and not self._abandoned:
            self._work.wait()
            self._work.clear()
            self._closing.wait(pause)
            if self._round():
                pause = _GATHER_S
                continue
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            self._work.set()
            if self._closing.is_set():
                last_tries += 1
                if last_tries == _LAST_TRIES:
                    return
                time.sleep(last_tries)

    def _round(self) -> bool:
        """Deliver what waits; False when something has to be tried again."""
        try:
            self._sink = self._sink or self._open()
            for trial_id in sorted(self._waiting):
                if self._abandoned:
                    return False
                self._deliver(self._sink, trial_id)
            if self._ending is not None:
                for made in averages(self._paths):
                    self._sink.average(made)
                self._sink.end(self._ending)
                self._ended = True
        except OwnershipLostError as e:  # the sweep's new owner delivers the rest
            self._abandoned = True
            self._note(e)
            return False
        except Exception as e:  # noqa: BLE001 - whatever a tracker does, training goes on
            self._note(e)
            return False
        finally:
            self._save()
        return True

    def _save(self) -> None:
        with contextlib.suppress(OwnershipLostError):  # the file is another's by now
            self._tenure.check()
            self._ledger.save()

    def _deliver(self, sink: Sink, trial_id: str) -> None:
        with self._lock:
            self._waiting.discard(trial_id)
        try:
            record = read_trial(self._paths.trial(trial_id))
        except UserError:  # damaged: the driver and `tune show` say so
            return
        if self._ledger.has(record):
            return
        tail = self._tails.setdefault(trial_id, ReportTail(self._paths.trial(trial_id)))
        try:
            new, position = tail.read(record.end_step)
            files = self._paths.trial(trial_id)
            sink.update(record, new, Extras() if record.state.active else extras(files, record))
        except Exception:
            with self._lock:
                self._waiting.add(trial_id)
            raise
        tail.position = position
        self._ledger.note(record)

    def _note(self, error: Exception) -> None:
        self._sink = None  # what it has of the last call is not known: the next one asks
        self._tails.clear()
        said = str(error).splitlines() or [""]
        text = redact(f"{type(error).__name__}: {said[0]}")
        if not self._error and not self._abandoned:
            log.warning("%s: %s; training goes on, and delivery is tried again", self._name, text)
        self._error = text


@dataclass
class _Ledger:
    """`delivered.json`: trials at rest that need no look any more, and how the session ended.

    Losing it costs questions to the sink, nothing else.
    """

    paths: SweepPaths
    destination: str

    def __post_init__(self) -> None:
        self.destination = hashlib.sha256(self.destination.encode()).hexdigest()[:16]
        self._trials: dict[str, str] = {}
        self.ending: Ending | None = None
        self._saved = ""
        raw = self._load()
        if raw.get("destination") == self.destination:
            self._trials = raw["trials"]
        if raw.get("ending"):
            self.ending = Ending(**raw["ending"])

    def has(self, record: TrialRecord) -> bool:
        """Whether a trial at rest was delivered as it is now."""
        return not record.state.active and self._trials.get(record.id) == _mark(record)

    def note(self, record: TrialRecord) -> None:
        """The trial was delivered as it is now."""
        if not record.state.active:
            self._trials[record.id] = _mark(record)

    def save(self) -> None:
        """Write it down, if it has changed and can be."""
        ending = asdict(self.ending) if self.ending else None
        raw = {"destination": self.destination, "trials": self._trials, "ending": ending}
        text = json.dumps(raw)
        if text != self._saved:
            try:
                write_atomic(self.paths.delivered, text.encode())
                self._saved = text
            except OSError as e:
                log.warning("%s: cannot be written (%s)", self.paths.delivered, e.strerror)

    def _load(self) -> dict[str, Any]:
        try:
            raw = json.loads(self.paths.delivered.read_bytes())
            return raw if isinstance(raw["trials"], dict) else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def _mark(record: TrialRecord) -> str:
    return f"{record.state} {len(record.attempts)} {record.end_step}"
