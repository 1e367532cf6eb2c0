"""The report at which a trial is complete: a loop may still save its model after it."""

from __future__ import annotations

import os
import threading

from results.records.reports import Report
from trainables.job import Answer, Channel
from trainables.worker import Worker

_CLOSING_S = 60.0
"""Longest time that a loop has, after its last step, to save its model and return."""


class LastReport:
    """A channel that holds the report of the last step (`max_t`) back until the loop returns.

    The driver ends the trial at that report, and a loop may still save its model. A loop that goes
    on for a minute is ended with its process, and the trial is complete.

    Args:
        worker: whose channel this is.
        is_kept: whether a function that builds a trainer is to return first, too; see
            `AttemptRunner`, which delivers the report then.
    """

    def __init__(self, worker: Worker, is_kept: bool) -> None:
        self._channel: Channel = worker.channel
        self._is_kept, self._job, self._held = is_kept, worker.job, list[Report]()
        self._timer: threading.Timer | None = None

    def report(self, report: Report) -> Answer:
        """Deliver a report, or hold it back."""
        if not self._job.is_last(report):
            return self._channel.report(report)
        self._held.append(report)
        if self._job.hang_timeout_s is not None:  # not in a debugger
            self._timer = threading.Timer(_CLOSING_S, self._end_process)
            self._timer.daemon = True
            self._timer.start()
        return Answer.CONTINUE

    def close(self) -> None:
        """The loop has returned."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._is_kept:
            self.deliver()

    def deliver(self) -> None:
        """Deliver the report that is held back, if there is one."""
        while self._held:
            self._channel.report(self._held.pop())

    def _end_process(self) -> None:
        self.deliver()
        os._exit(1)
