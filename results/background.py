"""Who else is told of a sweep, and how: in a thread of its own, so that training never waits."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from results.records import Report, TrialRecord

log = logging.getLogger(__name__)

_GATHER_S = 0.5
"""Seconds for which events are gathered, so that reports can be sent together."""


class Tracker(Protocol):
    """Who else is told of a sweep, beside the sweep folder. Methods return at once, never raise.

    After a resume everything may be told again: a tracker goes on with what it has, without
    repeating any of it.
    """

    def sweep_started(
        self, name: str, tags: Mapping[str, str], params: Mapping[str, object]
    ) -> None:
        """A sweep begins, or goes on after an interruption. The first call of a session."""

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt of a trial begins."""

    def reported(self, trial_id: str, report: Report) -> None:
        """A new report of a trial that has started."""

    def trial_ended(self, record: TrialRecord) -> None:
        """A trial ended; one that still says it runs was interrupted."""

    def sweep_ended(self, status: str, metrics: Mapping[str, float]) -> None:
        """The session ends: FINISHED, KILLED (interrupted) or FAILED."""

    def close(self, timeout: float) -> None:
        """Finish what is under way, for at most `timeout` seconds."""

    @property
    def problem(self) -> str | None:
        """One line on what was lost, or None."""


class NullTracker:
    """Tells nobody."""

    problem: str | None = None

    def sweep_started(
        self, name: str, tags: Mapping[str, str], params: Mapping[str, object]
    ) -> None:
        """Nothing."""

    def trial_started(self, record: TrialRecord) -> None:
        """Nothing."""

    def reported(self, trial_id: str, report: Report) -> None:
        """Nothing."""

    def trial_ended(self, record: TrialRecord) -> None:
        """Nothing."""

    def sweep_ended(self, status: str, metrics: Mapping[str, float]) -> None:
        """Nothing."""

    def close(self, timeout: float) -> None:
        """Nothing."""


class Sink(Protocol):
    """Where events go. Every method runs in the background thread and may raise anything."""

    def sweep_started(
        self, name: str, tags: Mapping[str, str], params: Mapping[str, object]
    ) -> None:
        """A sweep begins, or goes on after an interruption."""

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt of a trial begins."""

    def reported(self, trial_id: str, reports: list[Report]) -> None:
        """New reports of a trial, which has started."""

    def trial_ended(self, record: TrialRecord) -> None:
        """A trial ended, or its sweep was interrupted."""

    def sweep_ended(self, status: str, metrics: Mapping[str, float]) -> None:
        """A sweep ended: FINISHED, KILLED or FAILED."""


_Event = tuple[int, Callable[[Sink], None]]
"""How many events it stands for, and how the sink is told."""


class Background:
    """A queue and a thread in front of a `Sink`. Its methods return at once and never raise.

    What the sink does not take is counted as lost, warned of once, and not tried again.

    Args:
        open_sink: makes the sink, in the thread; tried again at the next event when it fails.
        name: of the sink, for messages.
        secret: never shown in a message; empty for none.
    """

    def __init__(self, open_sink: Callable[[], Sink], name: str, secret: str = "") -> None:
        self._open = open_sink
        self._name = name
        self._secret = secret
        self._queue: queue.SimpleQueue[_Event | tuple[str, Report] | None] = queue.SimpleQueue()
        self._sink: Sink | None = None
        self._given = self._done = self._lost = 0
        self._error = ""
        self._thread = threading.Thread(target=self._run, name=f"track {name}", daemon=True)
        self._awake = False

    def sweep_started(
        self, name: str, tags: Mapping[str, str], params: Mapping[str, object]
    ) -> None:
        """See `Sink`."""
        self._put((1, lambda sink: sink.sweep_started(name, tags, params)))

    def trial_started(self, record: TrialRecord) -> None:
        """See `Sink`."""
        self._put((1, lambda sink: sink.trial_started(record)))

    def reported(self, trial_id: str, report: Report) -> None:
        """One report of a trial; a step that the sink has already is not sent again."""
        self._put((trial_id, report))
        self._wake()

    def trial_ended(self, record: TrialRecord) -> None:
        """See `Sink`."""
        self._put((1, lambda sink: sink.trial_ended(record)))

    def sweep_ended(self, status: str, metrics: Mapping[str, float]) -> None:
        """See `Sink`."""
        self._put((1, lambda sink: sink.sweep_ended(status, metrics)))

    def close(self, timeout: float) -> None:
        """Send what is queued, for at most `timeout` seconds. Nothing is taken afterwards."""
        self._wake()
        self._queue.put(None)
        self._thread.join(timeout)

    @property
    def problem(self) -> str | None:
        """One line on what was not sent, for the end of a sweep; None when all was."""
        if self._lost:
            return f"{self._name}: {self._lost} of {self._given} events lost ({self._error})"
        waiting = self._given - self._done
        return f"{self._name}: {waiting} of {self._given} events not sent yet" if waiting else None

    def _wake(self) -> None:
        """Begin to send: not before there is a report, for imports would delay the first trial."""
        if not self._awake:
            self._awake = True
            self._thread.start()

    def _put(self, item: _Event | tuple[str, Report]) -> None:
        self._given += 1
        self._queue.put(item)

    def _run(self) -> None:
        more = True
        while more:
            gathered, more = self._gather()
            for count, tell in _merged(gathered):
                self._tell(count, tell)

    def _gather(self) -> tuple[list[_Event | tuple[str, Report]], bool]:
        """What came within a moment of the first event, and whether more may come."""
        item = self._queue.get()
        until = time.monotonic() + _GATHER_S
        gathered = []
        while item is not None:
            gathered.append(item)
            try:
                item = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return gathered, True
        return gathered, False

    def _tell(self, count: int, tell: Callable[[Sink], None]) -> None:
        try:
            self._sink = self._sink or self._open()
            tell(self._sink)
        except Exception as e:  # noqa: BLE001 - whatever a tracker does, training goes on
            self._lost += count
            if not self._error:
                text = f"{type(e).__name__}: {e}".splitlines()[0]
                self._error = text.replace(self._secret, "***") if self._secret else text
                log.warning("%s: %s; the sweep goes on without", self._name, self._error)
        self._done += count


def _merged(items: list[_Event | tuple[str, Report]]) -> list[_Event]:
    """The same events in order, the neighbouring reports of each trial as one."""
    events: list[_Event] = []
    waiting: dict[str, list[Report]] = {}

    def flush() -> None:
        for trial_id, reports in waiting.items():
            events.append((len(reports), _report(trial_id, reports)))
        waiting.clear()

    for first, second in items:
        if isinstance(second, Report):
            waiting.setdefault(str(first), []).append(second)
        else:
            flush()
            events.append((int(first), second))
    flush()
    return events


def _report(trial_id: str, reports: list[Report]) -> Callable[[Sink], None]:
    return lambda sink: sink.reported(trial_id, reports)
