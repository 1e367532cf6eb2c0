"""What is known of a running sweep's trials: which is the best, how many are done, what is left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite

from results.analysis.pareto import front_numbers
from results.records.trial import Report, TrialRecord
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import duration, number
from tuning.controller.events import SessionStart
from tuning.controller.resources.forecast import forecast, mean_trial_cost


class SweepProgress:
    """What is known of the sweep's trials, and which is the best: shared by both views.

    Attributes:
        rows: the trials by id.
        last: of each, the newest step and the newest value of each objective.
        before_s: seconds of earlier sessions.
        at_once: how many trials run at once.
    """

    def __init__(self, spec: SweepSpec, before_s: float = 0.0) -> None:
        self.spec = spec
        self.rows: dict[str, TrialRecord] = {}
        self.last: dict[str, tuple[int, tuple[float | None, ...]]] = {}
        self._names = [o.metric for o in spec.objectives]
        self._nothing = 0, tuple(None for _ in self._names)
        self._front: list[str] | None = None
        self.before_s = before_s
        self.at_once = 1
        self._since = time.monotonic()

    def trial_started(self, record: TrialRecord) -> None:
        """Keep the newest state of a trial."""
        self.rows[record.id] = record
        self._front = None

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """Keep a trial's newest report."""
        known = self.newest(record.id)[1]
        pairs = zip(self._names, known, strict=True)
        values = tuple(report.metrics.get(name, value) for name, value in pairs)
        self.last[record.id] = report.step, values
        self._front = None

    def newest(self, trial_id: str) -> tuple[int, tuple[float | None, ...]]:
        """A trial's newest step and values."""
        return self.last.get(trial_id, self._nothing)

    def trial_ended(self, record: TrialRecord) -> None:
        """Keep the newest state of a trial."""
        self.rows[record.id] = record
        self._front = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._since

    @property
    def total_s(self) -> float:
        """Seconds that the sweep took so far, earlier sessions included."""
        return self.before_s + self.elapsed_s

    @property
    def ahead(self) -> str:
        """What is left to come, in words; empty while nothing is known."""
        records = list(self.rows.values())
        each = mean_trial_cost(records)
        left = forecast(self.spec.budget, records, each, self.at_once, self.total_s)
        return (
            f"about {duration(left.seconds)} and {left.cost} left" if left and left.seconds else ""
        )

    @property
    def done(self) -> int:
        """Trials that are finished, or paused."""
        return sum(not r.state.active for r in self.rows.values())

    def best(self) -> list[str]:
        """The trial whose newest value is the best, or with several objectives those on the Pareto
        front; failed ones do not count.
        """
        if self._front is None:
            self._front = self._leaders()
        return self._front

    def _leaders(self) -> list[str]:
        signs = [1 if o.mode == "max" else -1 for o in self.spec.objectives]
        scores = {
            trial_id: [sign * v for sign, v in zip(signs, values, strict=True) if v is not None]
            for trial_id, (_, values) in self.last.items()
            if self.rows[trial_id].eligible
        }
        known = {i: s for i, s in scores.items() if len(s) == len(signs) and all(map(isfinite, s))}
        if len(signs) == 1:
            return [max(known, key=lambda i: known[i][0])] if known else []
        levels = front_numbers(list(known.values()))
        return [i for i, level in zip(known, levels, strict=True) if level == 0]

    def line(self, record: TrialRecord) -> str:
        """Step and value of a trial, in words."""
        step, values = self.newest(record.id)
        return f"step {step}  {self.words(values)}"

    def words(self, values: Sequence[float | None]) -> str:
        """Every objective with its value."""
        pairs = zip(self._names, values, strict=True)
        return "  ".join(f"{name} {number(value)}" for name, value in pairs)


def progress_of(start: SessionStart) -> SweepProgress:
    """The progress of a sweep at the start of a session."""
    progress = SweepProgress(start.spec, start.spent_s)
    for record, reports in start.history:
        progress.trial_started(record)
        for report in reports:
            progress.trial_reported(record, report)
    return progress
