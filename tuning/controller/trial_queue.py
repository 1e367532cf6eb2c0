"""The trials that run and those that wait."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass
class TrialQueue:
    """The trials that run, those that wait for an attempt, and requests to running ones, by id.

    A trial is in at most one of the two. One that is paused or finished is in neither.

    Attributes:
        waiting: the next one first.
        running: those with an attempt.
        moving: were asked to leave after a report, for an attempt with more workers.
        to_stop: were asked to stop at their next report.
        stopped: whether a person ended the sweep: all trials stop, also those to come.
    """

    waiting: deque[str] = field(default_factory=deque)
    running: set[str] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    to_stop: set[str] = field(default_factory=set)
    stopped: bool = False

    def is_idle(self, without: str | None = None) -> bool:
        """Whether no trial runs or waits, apart from one."""
        return not self.waiting and self.running <= {without}

    def requeue(self, trial_id: str) -> None:
        """Let a trial wait whose attempt ended, before the others."""
        self.running.discard(trial_id)
        self.waiting.appendleft(trial_id)

    def start(self, trial_id: str) -> None:
        """An attempt of a trial starts."""
        self.running.add(trial_id)
        self.moving.discard(trial_id)

    def is_stop_requested(self, trial_id: str) -> bool:
        """Whether a trial, or all of them, was asked to stop."""
        return self.stopped or trial_id in self.to_stop
