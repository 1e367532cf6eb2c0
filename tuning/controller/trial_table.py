"""The trials of a sweep: their records and curves, in memory and on disk, and which of them run."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from results.analysis.replicates import Curve, ReplicateGroups
from results.paths import SweepPaths
from results.records.record_log import write_logged_together
from results.records.reports import ReportWriter, read_chain
from results.records.trial import (
    Report,
    TrialRecord,
    TrialState,
    dump_trial,
    read_reports,
    read_trials,
    write_trial,
)
from results.storage.fencing import Fence, NullFence
from search_spaces.formulas.constraints import violations
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.attempts import count_reports
from tuning.controller.resources.budget import BudgetTracker

LONGEST_S = 1.0
"""A batch that is open for longer is written in parts, so that a kill loses little."""


@dataclass
class _Batch:
    """What is to be written together.

    Attributes:
        before: by id of each trial whose record changes, the one in which its newest attempt ran;
            else the one on disk, if any.
        new: ids of those that were not on disk before; they have no files.
        lines: of reports, by id.
    """

    before: dict[str, TrialRecord | None] = field(default_factory=dict)
    new: set[str] = field(default_factory=set)
    lines: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    begun: float = field(default_factory=time.monotonic)

    def __bool__(self) -> bool:
        return bool(self.before or self.lines)


class TrialTable:
    """The records and curves of all trials. A change is on disk before anything else depends on it.

    Attributes:
        records: every trial by id, as it is on disk; in a batch, as it will be.
        replicates: the trials of each configuration.
        budget: tracks the cost and the best values of the trials.
        fence: checked before every write, so that a driver that lost the sweep writes nothing.
    """

    def __init__(self, spec: SweepSpec, paths: SweepPaths, fence: Fence | None = None) -> None:
        self.spec, self.paths, self._metric = spec, paths, spec.metric
        self.records: dict[str, TrialRecord] = {}
        self.replicates = ReplicateGroups(spec.replicates)
        self.budget = BudgetTracker(spec.budget, spec.mode, spec.prices)
        self.fence: Fence = fence or NullFence()
        self._curves: dict[str, Curve] = {}
        self._metrics: dict[str, dict[str, float]] = {}
        self._batch: _Batch | None = None
        self._later: _Batch | None = None

    def read_back(self) -> dict[str, list[Report]]:
        """Fill the table from the sweep folder.

        Attempts that a dead driver left running are superseded first: their reports do not count.

        Returns:
            The reports of each trial, by id; they are not kept.
        """
        records = read_trials(self.paths)
        for record in (r for r in records if r.attempts and r.state.active):
            self._claim(record.id, len(record.attempts) + 1)
        reports = {r.id: read_reports(self.paths.trial(r.id), r.end_step) for r in records}
        for record in records:
            self._curves[record.id] = []
            for report in reports[record.id]:
                self.add_report(record.id, report)
            self._add(record)
        return reports

    def check_owner(self) -> None:
        """Check before a write that the sweep is still this driver's; a batch checks at its write.

        Raises:
            OwnershipLostError: another driver has taken the sweep over.
        """
        if self._batch is None:
            self.fence.check()

    def save(self, record: TrialRecord) -> None:
        """Write a trial's record.

        Raises:
            OwnershipLostError: another driver has taken the sweep over.
        """
        self.check_owner()
        self._curves.setdefault(record.id, [])
        before = self.records.get(record.id)
        if self._batch is not None:
            if before is None:
                self._batch.new.add(record.id)
            if record.id not in self._batch.before or (before and before.state.active):
                self._batch.before[record.id] = before
            self._add(record)
            self._write_if_due()
            return
        self.flush()
        paths = self.paths.trial(record.id)
        record = count_reports(record, before, paths)
        self._add(record)
        write_trial(paths, record)

    def claim(self, record: TrialRecord) -> None:
        """Create the folder of the newest attempt, for its workers; in a batch, it has none."""
        if self._batch is None:
            self._claim(record.id, record.attempts[-1].number)

    def _claim(self, trial_id: str, attempt: int) -> None:
        self.paths.trial(trial_id).attempt(attempt).mkdir(parents=True, exist_ok=True)

    def write_report(self, trial_id: str, writer: ReportWriter, report: Report) -> None:
        """Append a report to the file of a trial that has no workers which do."""
        if self._batch is None:
            self.flush()
            writer.append(report)
        else:
            self._batch.lines[trial_id].append(writer.next_line(report))

    @contextmanager
    def batched(self, *, later: bool = False) -> Iterator[None]:
        """Write the changes of the block together: when it ends, and with a record that changes a
        second or more after the last write.

        Args:
            later: with the next write, or at `flush`, in place of the block's end.
        """
        if self._batch is not None:
            yield
            return
        self._batch, self._later = self._later or _Batch(), None
        try:
            yield
        finally:
            self._later, self._batch = self._batch, None
            if not later:
                self.flush()

    @property
    def has_unwritten(self) -> bool:
        """Whether a batch has left changes for later."""
        return self._later is not None and bool(self._later)

    def flush(self) -> None:
        """Write what a batch has left for later; if that fails, it is still left."""
        if self._later is not None:
            self._write(self._later)
            self._later = None

    def _write_if_due(self) -> None:
        if self._batch is not None and time.monotonic() - self._batch.begun > LONGEST_S:
            held, self._batch = self._batch, _Batch()
            self._write(held)

    def _write(self, batch: _Batch) -> None:
        """Write a batch: each record once."""
        if not batch:
            return
        self.fence.check()
        lines = {i: "\n".join(found) for i, found in batch.lines.items()}
        contents = {}
        for trial_id, before in batch.before.items():
            paths, record = self.paths.trial(trial_id), self.records[trial_id]
            unwritten, new = lines.get(trial_id, ""), trial_id in batch.new
            counted = count_reports(record, before, paths, unwritten, new=new)
            if counted is not record:
                self._add(counted)
            contents[paths.record] = dump_trial(counted)
        files = {self.paths.trial(i).reports: text for i, text in lines.items()}
        write_logged_together(self.paths, files, contents)

    def reports(self, trial_id: str, end_step: int | None) -> list[Report]:
        """A trial's reports up to a step, with those that the batch will write."""
        unwritten = self._batch.lines.get(trial_id, ()) if self._batch is not None else ()
        return read_chain(self.paths.trial(trial_id), "\n".join(unwritten)).reports(end_step)

    def add_report(self, trial_id: str, report: Report) -> None:
        """Add a report to a trial's curve; it is in the trial's folder already."""
        newest = self._metrics.setdefault(trial_id, {})
        newest.update(report.metrics)
        value = report.metrics.get(self._metric)
        if value is None or not math.isfinite(value):
            return
        curve = self._curves[trial_id]
        while curve and curve[-1][0] >= report.step:  # a later attempt repeats the step
            curve.pop()
        curve.append((report.step, value))
        broken = violations(self.spec.outcome_constraints, newest).values()
        self.budget.record_value(trial_id, value, feasible=all(amount <= 0 for amount in broken))

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
        return set(self._metrics.get(trial_id, ()))

    def _add(self, record: TrialRecord) -> None:
        self.records[record.id] = record
        self.budget.record_trial(record)
        self.replicates.add(record)


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
