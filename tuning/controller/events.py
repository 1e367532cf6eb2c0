"""The events that a session sends to observers, and the request to end a session.

Observers are the terminal, the tracker, and Python callers.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord
from results.tracking import Ending
from search_spaces.spec.sweep import SweepSpec

_BOUND_S = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SessionStart:
    """The data of a sweep when a session starts.

    Attributes:
        paths, spec: of the sweep.
        spent_s: seconds of wall-clock of all earlier sessions.
        history: each trial of earlier sessions with its reports. Copy what you need: it is large.
        introduction: lines about the sweep, for people.
    """

    paths: SweepPaths
    spec: SweepSpec
    spent_s: float = 0.0
    history: Sequence[tuple[TrialRecord, Sequence[Report]]] = ()
    introduction: Sequence[str] = ()


class SweepEvents:
    """Base class of observers. Override the events of interest; the others do nothing.

    Events come one at a time; a method returns at once and does not raise. Only `session_ended`
    may take long. `message` may come from before `session_started` until `session_ended`, the
    others come in between.
    """

    def session_started(self, start: SessionStart) -> None:
        """The session owns the sweep folder and has read it."""

    def message(self, text: str) -> None:
        """One line on an event outside of trials: a repair, Ray starts, results are written."""

    def concurrency_known(self, trials: int) -> None:
        """The number of concurrent trials on this cluster."""

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt of a trial begins."""

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """A trial reported."""

    def trial_ended(self, record: TrialRecord) -> None:
        """An attempt ended; the trial is finished, paused, or PENDING if it will be retried."""

    def session_ended(self, ending: Ending | None) -> None:
        """The session is over; None if an error ended it before its results were written."""


_EVENTS = (
    *("session_started", "message", "concurrency_known"),
    *("trial_started", "trial_reported", "trial_ended"),
)
_LINES: dict[str, Callable[..., str]] = {
    "session_started": lambda start: "\n".join(start.introduction),
    "message": str,
    "trial_started": lambda record: f"{record.id}: attempt {len(record.attempts)} starts",
    "trial_reported": lambda r, report: f"{r.id}: step {report.step} {report.metrics}",
    "trial_ended": lambda record: f"{record.id}: {record.state} {record.reason}",
}
"""Events of which the log has lines."""


class Observers(SweepEvents):
    """Passes each event on to several observers in order, and `session_ended` in reverse order."""

    def __init__(self, observers: Iterable[SweepEvents] = ()) -> None:
        self._observers = list(observers)
        for event in _EVENTS:
            setattr(self, event, partial(self._notify, event))

    def add(self, observer: SweepEvents) -> None:
        """Pass events on to one more, from now on."""
        self._observers.append(observer)

    def _notify(self, event: str, *what: object) -> None:
        level = logging.DEBUG if event == "trial_reported" else logging.INFO
        if event in _LINES and log.isEnabledFor(level):
            for line in _LINES[event](*what).splitlines():
                log.log(level, "%s", line)
        for observer in self._observers:
            getattr(observer, event)(*what)

    def session_ended(self, ending: Ending | None) -> None:
        """See `SweepEvents`. Every observer is called, even if another one raises."""
        with ExitStack() as stack:
            for observer in self._observers:
                stack.callback(observer.session_ended, ending)


class Interrupt:
    """A request to end a session, which may come before the session can be interrupted.

    It is entered before a session starts: a subclass can connect it to signals meanwhile.
    """

    def __init__(self) -> None:
        self.requested = False
        self._stop: Callable[[], None] | None = None
        self._release: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        """End the session cleanly: running trials keep their checkpoints, for a resume."""
        self.requested = True
        if self._stop is not None:
            self._stop()

    @property
    def pending(self) -> bool:
        """Whether the request came."""
        return self.requested

    def give_up(self, problem: str) -> None:
        """The session is stuck and does not end: send the main thread SIGINT, as Ctrl-C does.

        Args:
            problem: one line.
        """
        log.error("%s", problem)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def watch(self, stop: Callable[[], None], release: Callable[[], None] = lambda: None) -> None:
        """Call `stop` when the request comes, or now if it has come.

        Args:
            stop: ends the session.
            release: frees the sweep for other drivers, if the process ends at once.
        """
        self._stop, self._release = stop, release
        if self.requested:
            stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing."""


def in_time(call: Callable[[], object]) -> bool:
    """Call a function that may hang, in a thread; whether it returned within two seconds."""
    returned = threading.Event()

    def run() -> None:
        with suppress(Exception):
            call()
            returned.set()

    threading.Thread(target=run, daemon=True).start()
    return returned.wait(_BOUND_S)
