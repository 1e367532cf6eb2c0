"""The progress of a running sweep: newest values, leaders, and forecast."""

from __future__ import annotations

import time
from math import isfinite

from results.analysis.pareto import front_numbers
from results.records.trial import Report, TrialRecord
from tuning.cli.formatting import duration, number
from tuning.controller.events import SessionStart
from tuning.controller.resources.forecast import forecast, mean_trial_cost

_SHARE = 100


class SweepProgress:
    """The trials of a sweep and their newest values, for both views.

    Args:
        start: of the session, with the records of earlier ones.

    Attributes:
        spec: of the sweep.
        records: the trials by id.
        newest_values: by trial id, the newest step and the newest value of each objective.
        spent_s: seconds of earlier sessions.
        concurrency: number of trials that run at once.
    """

    def __init__(self, start: SessionStart) -> None:
        self.spec = start.spec
        self.records: dict[str, TrialRecord] = {}
        self.newest_values: dict[str, tuple[int, tuple[float | None, ...]]] = {}
        self.spent_s = start.spent_s
        self.concurrency = 1
        self._names = [o.metric for o in self.spec.objectives]
        self._no_values = 0, tuple(None for _ in self._names)
        self._leaders: list[str] | None = None
        self._asked, self._remaining = 0, ""
        self._started = time.monotonic()
        for record, reports in start.history:
            self.update(record)
            for report in reports:
                self.add_report(record, report)

    def update(self, record: TrialRecord) -> None:
        """Keep the newest state of a trial."""
        self.records[record.id] = record
        self._leaders = None

    def add_report(self, record: TrialRecord, report: Report) -> None:
        """Keep a trial's newest report."""
        before = self.newest(record.id)[1]
        pairs = zip(self._names, before, strict=True)
        values = tuple(report.metrics.get(name, value) for name, value in pairs)
        self.newest_values[record.id] = report.step, values
        self._leaders = None

    def newest(self, trial_id: str) -> tuple[int, tuple[float | None, ...]]:
        """A trial's newest step and values."""
        return self.newest_values.get(trial_id, self._no_values)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self._started

    @property
    def total_s(self) -> float:
        """Seconds of this session and all earlier ones."""
        return self.spent_s + self.elapsed_s

    @property
    def remaining(self) -> str:
        """A forecast of time and cost, such as `about 3m07s and 0.2 CPU-hours left`, or empty.

        It sums over all trials, so it is made again only for every hundredth part of them: asked
        after each trial, it takes the same time on average after any number of trials.
        """
        self._asked += 1
        if self._asked > len(self.records) // _SHARE:
            self._asked, self._remaining = 0, self._forecast()
        return self._remaining

    def _forecast(self) -> str:
        records = list(self.records.values())
        spec = self.spec
        each = mean_trial_cost(records, spec.prices)
        left = forecast(spec.budget, records, each, self.concurrency, self.total_s, spec.prices)
        if not left or not left.seconds:
            return ""
        return f"about {duration(left.seconds)} and {left.cost} left"

    @property
    def num_done(self) -> int:
        """Number of trials that are finished or paused."""
        return sum(not r.state.active for r in self.records.values())

    def leaders(self) -> list[str]:
        """The trial with the best newest value; with several objectives, those on the Pareto front.

        Failed trials do not count.
        """
        if self._leaders is None:
            self._leaders = self._find_leaders()
        return self._leaders

    def _find_leaders(self) -> list[str]:
        signs = [1 if o.mode == "max" else -1 for o in self.spec.objectives]
        scores = {
            trial_id: [sign * v for sign, v in zip(signs, values, strict=True) if v is not None]
            for trial_id, (_, values) in self.newest_values.items()
            if self.records[trial_id].eligible
        }
        known = {i: s for i, s in scores.items() if len(s) == len(signs) and all(map(isfinite, s))}
        if len(signs) == 1:
            return [max(known, key=lambda i: known[i][0])] if known else []
        levels = front_numbers(list(known.values()))
        return [i for i, level in zip(known, levels, strict=True) if level == 0]

    def format_values(self, trial_id: str) -> str:
        """Every objective with the trial's newest value."""
        pairs = zip(self._names, self.newest(trial_id)[1], strict=True)
        return "  ".join(f"{name} {number(value)}" for name, value in pairs)
