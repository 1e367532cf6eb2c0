"""Who is told what happens in a sweep: the view, the tracker."""

from __future__ import annotations

from typing import Protocol

from results.records.trial import Report, TrialRecord


class SweepEvents(Protocol):
    """Is told what happens; called from one thread, must return at once."""

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt of a trial begins."""
        ...

    def reported(self, record: TrialRecord, report: Report) -> None:
        """A trial reported."""
        ...

    def trial_ended(self, record: TrialRecord) -> None:
        """An attempt ended; the trial is finished, or PENDING when it will be tried again."""
        ...
