"""Starts, pauses, requeues and ends trials; the order of writes and notifications is here."""

from __future__ import annotations

from functools import partial

from results.analysis.outcome_constraints import with_violations
from results.analysis.replicates import Curve, combined_record, mean_curve, mean_values
from results.records.failures import Cause, Failure, Remedy
from results.records.trial import TrialRecord, TrialState
from results.storage.fault_injection import fault_point
from tuning.controller.attempts import begin_attempt, end_attempt
from tuning.controller.events import Observers
from tuning.controller.resources.budget import USER_STOP
from tuning.controller.resources.placement import Allocation
from tuning.controller.scheduler_adapter import SchedulerAdapter
from tuning.controller.trial_table import TrialQueue, TrialTable
from tuning.search.findings import Finding
from tuning.search.study.study import SweepStudy
from tuning.search.trial_cache import copy_trial

_SHORT_WAIT_S = 1.0
"""Workers that are up take an attempt sooner: no write of the record then."""


class TrialLifecycle:
    """Changes the state of trials.

    The record is written first; then the queue, the scheduler, the study and the observers are
    informed. A driver that is killed in between repeats the rest when the sweep is resumed.

    Attributes:
        observers: are notified of events.
    """

    def __init__(
        self, table: TrialTable, queue: TrialQueue, scheduler: SchedulerAdapter, study: SweepStudy
    ) -> None:
        self.observers = Observers()
        self._table, self._queue = table, queue
        self._scheduler, self._study = scheduler, study

    def begin(self, record: TrialRecord, allocation: Allocation) -> TrialRecord:
        """Begin an attempt: its record and its folder are there before its processes are."""
        record = begin_attempt(record, allocation)
        self._table.save(record)
        fault_point("driver:recorded")
        self._table.claim(record)
        fault_point("driver:claimed")
        self._queue.start(record.id)
        self._scheduler.on_trial_resume(record.id)
        self.observers.trial_started(record)
        return record

    def reuse(self, record: TrialRecord, found: Finding) -> None:
        """Complete a trial with the reports and checkpoints of the same one in another sweep."""
        self._table.save(record)
        self._scheduler.on_trial_resume(record.id)
        self.observers.trial_started(record)
        for report in (reports := copy_trial(found, self._table.paths.trial(record.id))):
            self._table.add_report(record.id, report)
            self._scheduler.decide(record, report)
            self.observers.trial_reported(record, report)
        reason = f"reused from {found.source}"
        self.finish(record.id, TrialState.COMPLETED, reason, reports[-1].step)

    def refuse(self, record: TrialRecord, problem: str) -> None:
        """End a trial whose model fits no layout: an attempt would run out of memory."""
        self._table.save(record)
        reason = f"{Remedy.INFEASIBLE}: {problem}"
        self.finish(record.id, TrialState.FAILED, reason, self._table.last_step(record.id))

    def pause(self, trial_id: str, step: int) -> None:
        """Pause a trial that does not run."""
        reason = f"{self._table.spec.scheduler.name} at step {step}"
        self._save_end(trial_id, {"state": TrialState.PAUSED, "reason": reason})

    def pause_running(self, trial_id: str, step: int) -> None:
        """Pause a trial that reported."""
        self._queue.running.discard(trial_id)
        self.pause(trial_id, step)
        self._notify_ended(trial_id)

    def finish(self, trial_id: str, state: TrialState, reason: str, step: int | None) -> None:
        """End a trial for good."""
        self._save_end(trial_id, {"state": state, "reason": reason, "end_step": step})
        self._queue.running.discard(trial_id)
        self._scheduler.on_trial_complete(trial_id)
        fault_point("driver:finished")
        outcome, curve, finals = self.configuration(self._table.records[trial_id].number)
        if outcome.state.finished:
            self._study.tell(outcome, curve, finals)
        fault_point("driver:told")
        self._notify_ended(trial_id)

    def retry(self, trial_id: str) -> None:
        """Queue a trial again whose attempt ended, unless a person asked to stop it."""
        if self._queue.is_stop_requested(trial_id):
            self._stop_by_user(trial_id)
        else:
            self._queue.requeue(trial_id)
            self._notify_ended(trial_id)

    def move(self, trial_id: str) -> None:
        """Queue a trial again that stopped in order to continue with more workers."""
        record = end_attempt(self._table.records[trial_id])
        self._table.save(record.model_copy(update={"reason": "continues with more workers"}))
        self.retry(trial_id)

    def stop(self, trial_id: str | None) -> bool:
        """End a trial, or all trials and the sweep, because a person asked for it.

        Trials that run end at their next report.

        Returns:
            Whether no such trial runs any more.
        """
        if trial_id is None:
            self._queue.stopped = True
        unfinished = [i for i, r in self._table.records.items() if not r.state.finished]
        requested = {i for i in unfinished if i == trial_id or trial_id is None}
        for waiting in requested - self._queue.running:
            if waiting in self._queue.waiting:
                self._queue.waiting.remove(waiting)
            self._stop_by_user(waiting)
        self._queue.to_stop |= requested
        return requested.isdisjoint(self._queue.running)

    def _stop_by_user(self, trial_id: str) -> None:
        step = self._table.last_step(trial_id)
        self.finish(trial_id, TrialState.STOPPED, USER_STOP.stop_reason, step)

    def record_leak(self, key: str, description: str) -> None:
        """Record what an attempt (`TrialJob.key`) left behind; its lane was replaced."""
        self._update_attempt(key, {"leak": description})

    def record_wait(self, key: str, waited: float) -> None:
        """Record for how many seconds an attempt waited for its workers, once, if it is not short.

        It is written with the first report, so that a killed driver does not lose it.
        """
        trial_id, _, number = key.rpartition(".")
        last = self._table.records[trial_id].attempts[-1]
        if waited >= _SHORT_WAIT_S and not last.waited and last.number == int(number):
            self._update_attempt(key, {"waited": round(waited, 3)})

    def _update_attempt(self, key: str, update: dict[str, object]) -> None:
        trial_id, _, number = key.rpartition(".")
        record = self._table.records[trial_id]
        attempts = tuple(
            a.model_copy(update=update) if a.number == int(number) else a for a in record.attempts
        )
        self._table.save(record.model_copy(update={"attempts": attempts}))

    def fail(self, trial_id: str, error: str, remedy: Remedy, step: int | None) -> None:
        """End a trial for what it reported, or did not report, up to a step."""
        record, last_step = self._table.records[trial_id], self._table.last_step(trial_id)
        self._table.save(end_attempt(record, Failure(error, remedy, Cause.BUG), step=last_step))
        reason = f"{remedy}: {error}" if remedy is Remedy.DIVERGED else error
        self.finish(trial_id, TrialState.FAILED, reason, step)

    def release(self) -> None:
        """The session ends: record running trials as unfinished.

        Paused trials stay paused: a longer session may resume them.
        """
        for trial_id in sorted(self._queue.running):
            self._table.save(end_attempt(self._table.records[trial_id]))
            self._notify_ended(trial_id)
            self._queue.requeue(trial_id)  # else a sweep without other trials would count as done

    def configuration(self, number: int) -> tuple[TrialRecord, Curve, list[float] | None]:
        """The outcome of a configuration for the study: record, curve and final values, combined
        over its replicates.
        """
        group = self._table.replicates.of(number)
        curve = mean_curve([self._table.curve(r.id) for r in group])
        finals = mean_values(self._scheduler.final_values(r.id) for r in group)
        return combined_record(group, self._table.spec.replicates), curve, finals

    def _save_end(self, trial_id: str, update: dict[str, object]) -> None:
        table = self._table
        record = end_attempt(table.records[trial_id]).model_copy(update=update)
        reports = partial(table.reports, trial_id, record.end_step)
        table.save(with_violations(record, table.spec.outcome_constraints, reports))

    def _notify_ended(self, trial_id: str) -> None:
        self.observers.trial_ended(self._table.records[trial_id])
