"""The trials of a sweep: every record and curve, in memory and in the sweep folder."""

from __future__ import annotations

import math

from results.analysis.replicates import Curve, ReplicateGroups
from results.paths import SweepPaths
from results.records.trial import (
    Report,
    TrialRecord,
    TrialState,
    read_reports,
    read_trials,
    write_trial,
)
from results.storage.fencing import Fence, NullFence
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.attempts import claim_next_attempts, count_reports
from tuning.controller.resources.budget import BudgetTracker


class TrialTable:
    """The records and curves of all trials. A change is on disk before anything else depends on it.

    Attributes:
        records: every trial by id, as it is on disk.
        replicates: the trials of each configuration.
        budget: tracks the cost and the best values of the trials.
        fence: checked before every write, so that a driver that lost the sweep writes nothing.
    """

    def __init__(self, spec: SweepSpec, paths: SweepPaths, fence: Fence | None = None) -> None:
        self.spec, self.paths = spec, paths
        self.records: dict[str, TrialRecord] = {}
        self.replicates = ReplicateGroups(spec.replicates)
        self.budget = BudgetTracker(spec.budget, spec.mode)
        self.fence: Fence = fence or NullFence()
        self._curves: dict[str, Curve] = {}
        self._metrics: dict[str, set[str]] = {}

    def read_back(self) -> dict[str, list[Report]]:
        """Fill the table from the sweep folder.

        Attempts that a dead driver left running are superseded first: their reports do not count.

        Returns:
            The reports of each trial, by id; they are not kept.
        """
        records = read_trials(self.paths)
        claim_next_attempts(self.paths, records)
        reports = {r.id: read_reports(self.paths.trial(r.id), r.end_step) for r in records}
        for record in records:
            self._curves[record.id] = []
            for report in reports[record.id]:
                self.add_report(record.id, report)
            self._add(record)
        return reports

    def save(self, record: TrialRecord) -> None:
        """Write a trial's record.

        Raises:
            OwnershipLostError: another driver has taken the sweep over.
        """
        self.fence.check()
        self._curves.setdefault(record.id, [])
        paths = self.paths.trial(record.id)
        record = count_reports(record, self.records.get(record.id), paths)
        self._add(record)
        write_trial(paths, record)

    def add_report(self, trial_id: str, report: Report) -> None:
        """Add a report to a trial's curve; it is in the trial's folder already."""
        self._metrics.setdefault(trial_id, set()).update(report.metrics)
        value = report.metrics.get(self.spec.metric)
        if value is None or not math.isfinite(value):
            return
        curve = self._curves[trial_id]
        while curve and curve[-1][0] >= report.step:  # a later attempt repeats the step
            curve.pop()
        curve.append((report.step, value))
        self.budget.record_value(trial_id, value)

    def curve(self, trial_id: str) -> Curve:
        """Step and value of each report with a finite value of the first objective."""
        return self._curves[trial_id]

    @property
    def has_value(self) -> bool:
        """Whether a trial reported a finite value of the first objective."""
        return any(self._curves.values())

    @property
    def has_result(self) -> bool:
        """Whether a trial that did not fail has such a value."""
        failed = TrialState.FAILED
        return any(c and self.records[i].state is not failed for i, c in self._curves.items())

    def last_step(self, trial_id: str) -> int | None:
        """The last step of the curve; None if there is none."""
        curve = self._curves[trial_id]
        return curve[-1][0] if curve else None

    def reported_metrics(self, trial_id: str) -> set[str]:
        """Names of all metrics that a trial reported."""
        return self._metrics.get(trial_id, set())

    def _add(self, record: TrialRecord) -> None:
        self.records[record.id] = record
        self.budget.record_trial(record)
        self.replicates.add(record)
