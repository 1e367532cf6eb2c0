"""The trials that run and those that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class TrialQueue:
    """The trials that run, those that wait for an attempt, and requests to running ones.

    A trial is in at most one of the two. One that is paused or finished is in neither.

    Attributes:
        stopped: whether a person ended the sweep.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._running: set[str] = set()
        self._moving: set[str] = set()
        self._stop_requested: set[str] = set()
        self.stopped = False

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the trials that wait, the next one first."""
        return tuple(self._waiting)

    @property
    def running(self) -> frozenset[str]:
        """Ids of the trials that run."""
        return frozenset(self._running)

    @property
    def has_running(self) -> bool:
        """Whether a trial runs."""
        return bool(self._running)

    def is_idle(self, without: str | None = None) -> bool:
        """Whether no trial runs or waits, apart from one."""
        return not self._waiting and self._running <= {without}

    def is_running(self, trial_id: str) -> bool:
        """Whether a trial runs."""
        return trial_id in self._running

    def append(self, trial_id: str) -> None:
        """Let a trial wait, behind the others."""
        self._waiting.append(trial_id)

    def requeue(self, trial_id: str) -> None:
        """Let a trial wait whose attempt ended, before the others."""
        self._running.discard(trial_id)
        self._waiting.appendleft(trial_id)

    def remove(self, trial_id: str) -> None:
        """Take a trial out of those that wait, if it is one of them."""
        if trial_id in self._waiting:
            self._waiting.remove(trial_id)

    def start(self, trial_id: str) -> None:
        """An attempt of a trial starts."""
        self._running.add(trial_id)
        self._moving.discard(trial_id)

    def end(self, trial_id: str) -> None:
        """A trial does not run any more."""
        self._running.discard(trial_id)

    def request_move(self, trial_id: str) -> None:
        """Ask a running trial to leave after its report, for an attempt with more workers."""
        self._moving.add(trial_id)

    def is_moving(self, trial_id: str) -> bool:
        """Whether a trial runs and was asked to move since its attempt started."""
        return trial_id in self._running and trial_id in self._moving

    def request_stop(self, trial_ids: Iterable[str]) -> None:
        """Ask trials to stop at their next report."""
        self._stop_requested.update(trial_ids)

    def is_stop_requested(self, trial_id: str) -> bool:
        """Whether a trial, or all of them, was asked to stop."""
        return self.stopped or trial_id in self._stop_requested

    def stop_all(self) -> None:
        """Ask all trials to stop, also those to come: a person ended the sweep."""
        self.stopped = True
