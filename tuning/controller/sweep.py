"""A running sweep: decides about its trials at a report, at their end, at a failure, on request.

Knows nothing of Ray: `tuning.controller.ray_tune` drives it, and tests run it without a cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from results.paths import SweepPaths
from results.records.failures import Remedy
from results.records.machines import Machine
from results.records.trial import Report, TrialRecord, TrialState
from results.storage.fault_injection import fault_point
from results.storage.fencing import Fence
from results.sweep_folder.copies.checkpoint_mirror import MirrorLocation
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from tuning.controller.attempts import end_attempt, new_record
from tuning.controller.events import Observers
from tuning.controller.failure_policy import UNKNOWN_MACHINES, FailurePolicy
from tuning.controller.resources.budget import USER_STOP, Limit
from tuning.controller.resources.placement import FindAllocation, default_allocation
from tuning.controller.resources.trial_layouts import trial_layouts
from tuning.controller.scheduler_adapter import SchedulerAdapter
from tuning.controller.trial_jobs import make_attempt_job
from tuning.controller.trial_lifecycle import TrialLifecycle
from tuning.controller.trial_source import TrialSource
from tuning.controller.trial_table import TrialQueue, TrialTable
from tuning.search.schedulers import Decision
from tuning.search.study.study import SweepStudy
from tuning.search.trial_cache import TrialCache


class SweepController:
    """One session of a sweep, from `run` or `resume` to its end.

    Args:
        spec, paths, study: of the sweep.
        cache: folder of prepared data, for trials.
        spent_s: seconds of wall-clock of earlier sessions.
        fence: checked before every write.
        mirror: object storage for copies of the checkpoints.

    Attributes:
        table, queue, scheduler, layouts, failures, source, lifecycle: its parts.
        reuse: trials of other sweeps that are copied instead of run.
        interrupted: nothing more is proposed or retried.
        gave_up: the session ended because no trial can run on the cluster now.
        problem: errors outside of the trials, for the summary, a line for each.
        resume_options: of the `tune resume` that continues after the session gave up.
        repaired: one line per repair of the folder.
        error: the first exception of a callback of Ray's, which the session raises.
        on_progress: called whenever Ray calls the driver, at least once a second.
    """

    def __init__(
        self,
        spec: SweepSpec,
        paths: SweepPaths,
        study: SweepStudy,
        *,
        cache: str,
        spent_s: float = 0.0,
        fence: Fence | None = None,
        mirror: MirrorLocation | None = None,
    ) -> None:
        self.spec, self.paths, self.study = spec, paths, study
        self.table, self.queue = TrialTable(spec, paths, fence), TrialQueue()
        self.layouts = trial_layouts(spec, paths.storage.root)
        self.scheduler = SchedulerAdapter(spec)
        self.failures = FailurePolicy(spec, paths, self.layouts)
        parts = self.table, self.queue, self.scheduler, study
        self.lifecycle = TrialLifecycle(*parts)
        self.source = TrialSource(*parts, self.layouts)
        self.reuse = TrialCache(())
        self.interrupted = self.gave_up = False
        self.problem = self.resume_options = ""
        self.repaired: list[str] = []
        self.error: Exception | None = None
        self.on_progress: Callable[[], None] = lambda: None
        self._cache, self._mirror = cache, mirror
        self._started = time.monotonic() - spent_s

    @property
    def records(self) -> dict[str, TrialRecord]:
        """Every trial by id, as it is on disk."""
        return self.table.records

    @property
    def observers(self) -> Observers:
        """Notified of events."""
        return self.lifecycle.observers

    @property
    def elapsed_s(self) -> float:
        """Seconds of wall-clock that the sweep spent, earlier sessions included."""
        return time.monotonic() - self._started

    @property
    def limit(self) -> Limit | None:
        """The limit of the budget that is reached."""
        if self.queue.stopped:
            return USER_STOP
        return self.table.budget.limit(self.elapsed_s, self.study.regret_bound)

    @property
    def finished(self) -> bool:
        """Whether no trial runs and none is left to run."""
        return not self.queue.running and not self.has_next

    @property
    def has_next(self) -> bool:
        """Whether another attempt may begin now, or when there is room for it."""
        return not self.interrupted and self.source.has_next(self.limit)

    def next_trial(self, find: FindAllocation | None = None) -> TrialJob | None:
        """Begin the next attempt; None if none can begin now.

        Args:
            find: gives the allocation of an attempt.
        """
        find = find or default_allocation(self.spec.resources)
        while self.has_next:
            if (following := self.source.next(self.limit, find)) is None:
                return None
            record, allocation = following
            if allocation is None:
                self.lifecycle.refuse(record, self.layouts.problem(record))
                continue
            found = None if record.attempts else self.reuse.find(record)
            if found is None:
                record = self.lifecycle.begin(record, allocation)
                own: dict[str, Any] = {"rungs": self.scheduler.rungs, "mirror": self._mirror}
                folder = self.paths.trial(record.id).root
                return make_attempt_job(
                    self.spec, record, folder, self._cache, avoid=allocation.avoid, **own
                )
            self.lifecycle.reuse(record, found)
        return None

    @contextmanager
    def batched(self, *, records_later: bool = False) -> Iterator[None]:
        """Write what the block changes in one go when it ends; the records perhaps with the next
        write: if the driver is killed before, the study still has the proposals.
        """
        with self.study.batched(), self.table.batched(later=records_later):
            yield

    def on_report(self, trial_id: str, report: Report) -> Decision:
        """Record a report and decide; unless it is CONTINUE, the trial's record says so already."""
        if trial_id not in self.queue.running:
            return Decision.STOP
        first = not self.table.reported_metrics(trial_id)
        self.table.add_report(trial_id, report)
        record = self.records[trial_id]
        self.observers.trial_reported(record, report)
        if (fault := self.scheduler.divergence(report)) is not None:
            self.lifecycle.fail(trial_id, fault, Remedy.DIVERGED, report.step)
            return Decision.STOP
        lacks = self.spec.failure.stop_after_same and self.spec.metric not in report.metrics
        if first and lacks and not self.table.has_value:
            self._fail_without_value(trial_id, "its first report lacks", report.step)
            return Decision.STOP
        return self.carry_out(trial_id, report.step, self.scheduler.decide(record, report))

    def carry_out(self, trial_id: str, step: int, decision: Decision) -> Decision:
        """Act on the scheduler's decision; returns the decision for the trial, which may differ."""
        name, finish = self.spec.scheduler.name, self.lifecycle.finish
        if decision is Decision.STOP:
            finish(trial_id, TrialState.STOPPED, f"{name} at step {step}", step)
        elif decision is Decision.COMPLETE:
            finish(trial_id, TrialState.COMPLETED, f"max_t at step {step}", step)
        elif reason := self._stop_reason(trial_id):
            finish(trial_id, TrialState.STOPPED, f"{reason} at step {step}", step)
            return Decision.STOP
        elif decision is Decision.PAUSE:
            return self._pause_or_continue(trial_id, step)
        return decision

    def _stop_reason(self, trial_id: str) -> str | None:
        by_user = self.queue.is_stop_requested(trial_id)
        limit = USER_STOP if by_user else self.table.budget.hard_limit(self.elapsed_s)
        return limit.stop_reason if limit else None

    def _pause_or_continue(self, trial_id: str, step: int) -> Decision:
        """Pause a trial, unless it would be resumed at once."""
        next_one = self.source.next_to_resume(self.limit, pausing=trial_id)
        if next_one == trial_id and self.scheduler.exploit(trial_id, self.records) is None:
            self.scheduler.on_trial_resume(trial_id)
            return Decision.CONTINUE
        self.lifecycle.pause_running(trial_id, step)
        return Decision.PAUSE

    def on_ended(self, trial_id: str, pruned: str = "") -> None:
        """The code of a trial returned by itself.

        Args:
            pruned: why it gave the trial up; empty if it did not.
        """
        if trial_id not in self.queue.running:
            return
        step = self.table.last_step(trial_id)
        if trial_id in self.queue.moving:
            self.lifecycle.move(trial_id)
        elif pruned:
            self.lifecycle.finish(trial_id, TrialState.STOPPED, f"pruned: {pruned}", step)
        elif step is None or self.scheduler.final_values(trial_id) is None:
            fault = "never reported" if step is None else "no report has"
            self._fail_without_value(trial_id, fault, step)
        else:
            self.lifecycle.finish(trial_id, TrialState.COMPLETED, "ran to its end", step)

    def _fail_without_value(self, trial_id: str, fault: str, step: int | None) -> None:
        """End a trial that did not report the metric; a retry would not either."""
        error = self.failures.describe_missing(fault, self.table.reported_metrics(trial_id))
        self.lifecycle.fail(trial_id, error, Remedy.FAIL_TRIAL, step)
        self._end_if_all_fail_alike(self._failed_alike(error), error)

    def _failed_alike(self, error: str) -> tuple[str, ...]:
        """Trials that failed in the same way, while no trial has a value."""
        records = self.records.values()
        return () if self.table.has_value else self.failures.failed_alike(error, records)

    def _end_if_all_fail_alike(self, alike: Sequence[str], error: str) -> None:
        if (problem := self.failures.reason_to_end(alike, error)) is not None:
            self.give_up(problem)
            self.resume_options = " --retry-failed"

    def on_failed(
        self,
        trial_id: str,
        error: str,
        *,
        began: bool = True,
        machines: Mapping[int, Machine] = UNKNOWN_MACHINES,
    ) -> Remedy | None:
        """The processes of a trial failed; it is queued again while its retries last.

        An attempt whose code had not started does not count as a failure.

        Args:
            trial_id: of the trial.
            error: one line.
            began: whether the trial's code had started.
            machines: of each rank, as far as that is known.

        Returns:
            The remedy; None if the attempt does not count.
        """
        if trial_id not in self.queue.running:
            return None
        record, step = self.records[trial_id], self.table.last_step(trial_id)
        failure = self.failures.diagnose(record, error, step, machines) if began else None
        self.table.save(record := end_attempt(record, failure, step=step))
        fault_point("driver:failed")
        if failure is None:
            self.lifecycle.retry(trial_id)
            return None
        alike = self._failed_alike(failure.error)
        if reason := self.failures.reason_to_fail(failure, record.attempts, alike):
            self.lifecycle.finish(trial_id, TrialState.FAILED, reason, step)
            self._end_if_all_fail_alike(alike, failure.error)
            return failure.remedy
        if failure.remedy in (Remedy.SHRINK, Remedy.LARGER_LAYOUT):
            self.table.save(self.failures.shrunk_record(record))
        if failure.remedy is Remedy.STOP_SWEEP:
            self.give_up(f"{trial_id}: {failure.error}")
        self.lifecycle.retry(trial_id)
        return failure.remedy

    def note_problem(self, problem: str, *, fatal: bool = False) -> None:
        """Keep a problem for the summary; a fatal one ends the session."""
        if fatal:
            self.give_up(problem)
        else:
            self.problem = "\n".join(filter(None, (self.problem, problem)))

    def give_up(self, problem: str) -> None:
        """No trial can run on the cluster now: end the session, and leave all for a resume."""
        self.problem, self.gave_up = problem, True
        self.interrupt()

    def fail(self, error: Exception) -> None:
        """Keep the first exception of a callback of Ray's, which swallows it; end the session."""
        self.error = self.error or error
        self.interrupt()

    def interrupt(self) -> None:
        """Propose and retry nothing more; running trials are left unfinished, for a resume."""
        self.interrupted = True

    def add(self, params: dict[str, object], tag: str) -> None:
        """Queue a configuration, once for each tag; missing parameters are proposed."""
        self.study.enqueue(params, tag)
        while self.study.has_waiting:
            self.table.save(record := new_record(self.spec, *self.study.ask()))
            self.queue.waiting.append(record.id)
