"""The books of a running sweep: which trial is next, what was reported, why each one ended.

Knows nothing of Ray: `tuning.execution.ray_tune` drives it, and the tests do without a cluster.
Every change is on disk before anyone is told of it, so a killed driver loses nothing.
"""

from __future__ import annotations

import math
import time
from collections import deque

from results.failures import Cause, Failure, Remedy
from results.faultpoints import reached
from results.paths import SweepPaths
from results.records import (
    Attempt,
    Report,
    TrialRecord,
    TrialState,
    read_reports,
    read_trials,
    write_trial,
)
from search_spaces.errors import suggest
from search_spaces.schema import SweepSpec
from trainables.worker import TrialJob
from tuning.execution.budget import Limit, limit_reached
from tuning.execution.job import make_job
from tuning.execution.observer import Observer
from tuning.execution.verdict import diagnose, shrink, verdict
from tuning.search.schedulers import Decision, make_scheduler
from tuning.search.study import Curve, SweepStudy, derive_seed


class SweepRun:
    """One session of a sweep, from `run` or `resume` to its end.

    Attributes:
        records: every trial by id, as it is on disk.
        observers: told what happens, in this order.
        held: CPUs and GPUs that one trial holds.
        interrupted: nothing more is proposed or retried.
        problem: what went wrong beside the trials, one line for the summary.
        gave_up: whether the session ended because of it.
    """

    def __init__(
        self,
        spec: SweepSpec,
        paths: SweepPaths,
        study: SweepStudy,
        cache: str,
        spent_s: float = 0.0,
    ) -> None:
        self.spec, self.paths = spec, paths
        self.records: dict[str, TrialRecord] = {}
        self.held = (spec.resources.workers * spec.resources.cpus_per_worker, 0.0)
        self.interrupted = False
        self.observers: list[Observer] = []
        self.problem: str | None = None
        self.gave_up = False
        self._study, self._cache = study, cache
        self._scheduler = make_scheduler(spec.scheduler)
        self._queue: deque[str] = deque()
        self._live: set[str] = set()
        self._curves: dict[str, Curve] = {}
        self._reported: dict[str, set[str]] = {}
        self._started = time.monotonic() - spent_s

    # -- what was, before this session --

    def restore(self) -> None:
        """Rebuild from the sweep folder: unfinished trials are queued, rungs and study refilled."""
        records = read_trials(self.paths)
        known = {r.number for r in records}
        self._study.rebuild((r, self._load(r)) for r in records)
        for number, params in self._study.proposals(known):
            # the driver was killed between proposal and record
            self._adopt(self._new_record(number, params))
        self._replay()
        for record in sorted(self.records.values(), key=lambda r: r.number):
            if not record.state.finished:
                self._close_attempt(record, None, ended=self._last_sign(record))
                self._queue.append(record.id)

    def _load(self, record: TrialRecord) -> Curve:
        self.records[record.id] = record
        curve = self._curves.setdefault(record.id, [])
        for report in read_reports(self.paths.trial(record.id), record.end_step):
            self._note(record.id, report)
        return curve

    def _last_sign(self, record: TrialRecord) -> float:
        """When an attempt whose driver was killed was last heard of, in Unix seconds."""
        reports = read_reports(self.paths.trial(record.id))
        return max([a.started for a in record.attempts] + [r.time for r in reports], default=0.0)

    def _replay(self) -> None:
        history = [
            (report.time, record.id, report)
            for record in self.records.values()
            for report in read_reports(self.paths.trial(record.id), record.end_step)
        ]
        for _, trial_id, report in sorted(history, key=lambda h: h[:2]):
            value = report.metrics.get(self.spec.metric)
            if value is not None and math.isfinite(value):
                self._scheduler.decide(trial_id, self._clock(report), self._score(value))

    # -- what is next --

    @property
    def elapsed_s(self) -> float:
        """Seconds of wall-clock that the sweep spent, earlier sessions included."""
        return time.monotonic() - self._started

    @property
    def limit(self) -> Limit | None:
        """The limit of the budget that is reached."""
        gain = self._study.regret_bound
        spec = self.spec
        return limit_reached(
            spec.budget, spec.mode, self.records, self._value, self.elapsed_s, gain
        )

    @property
    def finished(self) -> bool:
        """Nothing runs and nothing is left to run."""
        return not self._live and not self._may_begin

    @property
    def _may_begin(self) -> bool:
        """Whether a trial may begin: one that waits, or a new one."""
        if self.interrupted:
            return False
        limit = self.limit
        return limit is None or (not limit.hard and bool(self._queue))

    def next_trial(self) -> TrialJob | None:
        """The next attempt to launch, or None when there is none to launch now."""
        if not self._may_begin:
            return None
        if self._queue:
            record = self.records[self._queue.popleft()]
        else:
            proposed = self._study.ask()
            reached("driver:asked")
            record = self._new_record(*proposed)
        return self._begin(record)

    def _new_record(self, number: int, params: dict[str, object]) -> TrialRecord:
        return TrialRecord(
            id=f"t{number:04d}",
            number=number,
            params=params,
            config=self.spec.nest(params),
            seed=derive_seed(self.spec.seed, number),
            created=time.time(),
        )

    def _begin(self, record: TrialRecord) -> TrialJob:
        number = len(record.attempts) + 1
        cpus, gpus = self.held
        attempt = Attempt(number=number, started=time.time(), cpus=cpus, gpus=gpus)
        attempts = (*record.attempts, attempt)
        paths = self.paths.trial(record.id)
        self._adopt(record.model_copy(update={"state": TrialState.RUNNING, "attempts": attempts}))
        reached("driver:recorded")
        paths.attempt(number).mkdir(parents=True, exist_ok=True)
        reached("driver:claimed")
        self._live.add(record.id)
        for observer in self.observers:
            observer.trial_started(self.records[record.id])
        return make_job(
            self.spec,
            trial_id=record.id,
            folder=paths.root,
            config={**record.config, **record.adjusted},
            seed=record.seed,
            attempt=number,
            cache=self._cache,
        )

    # -- what happened --

    def on_report(self, trial_id: str, report: Report) -> Decision:
        """Note a report and decide; a trial that is not to go on is finished in the books."""
        if trial_id not in self._live:
            return Decision.STOP
        self._note(trial_id, report)
        for observer in self.observers:
            observer.reported(self.records[trial_id], report)
        value = report.metrics.get(self.spec.metric)
        if value is not None and self._is_divergence(value):
            self._diverge(trial_id, value, report.step)
            return Decision.STOP
        decision = Decision.CONTINUE
        if value is not None:
            decision = self._scheduler.decide(trial_id, self._clock(report), self._score(value))
        return self._conclude(trial_id, report.step, decision)

    def _conclude(self, trial_id: str, step: int, decision: Decision) -> Decision:
        name = self.spec.scheduler.name
        if decision is Decision.STOP:
            self._finish(trial_id, TrialState.STOPPED, f"{name} at step {step}", step)
        elif decision is Decision.COMPLETE:
            self._finish(trial_id, TrialState.COMPLETED, f"max_t at step {step}", step)
        elif (limit := self.limit) and limit.hard:
            self._finish(trial_id, TrialState.STOPPED, f"{limit.cause} at step {step}", step)
            return Decision.STOP
        return decision

    def on_ended(self, trial_id: str) -> None:
        """The trial's code returned by itself."""
        if trial_id not in self._live:
            return
        curve = self._curves[trial_id]
        if curve:
            self._finish(trial_id, TrialState.COMPLETED, "ran to its end", curve[-1][0])
            return
        said = self._reported.get(trial_id, set())
        hint = suggest(self.spec.metric, said) if said else "; it reported nothing"
        self._finish(trial_id, TrialState.FAILED, f"never reported {self.spec.metric}{hint}", None)

    def on_failed(self, trial_id: str, error: str, *, began: bool = True) -> Remedy | None:
        """The trial's processes failed; it is queued again while its retries last.

        A trial that had not begun is not to blame: that attempt does not count as a failure.

        Returns:
            What the failure was taken for, None when it was none of the trial's.
        """
        if trial_id not in self._live:
            return None
        record, paths = self.records[trial_id], self.paths.trial(trial_id)
        failure = None
        if began:
            failure = diagnose(error, paths, record, self._last_step(trial_id), self.spec)
        self._close_attempt(record, failure)
        reached("driver:failed")
        if failure is None:
            self._again(trial_id)
            return None
        over = verdict(failure, self.records[trial_id].attempts, self.spec.failure)
        if over is not None:
            self._finish(trial_id, TrialState.FAILED, over, self._last_step(trial_id))
            return failure.remedy
        if failure.remedy is Remedy.SHRINK:
            adjusted = {**record.adjusted, **(shrink(record, self.spec) or {})}
            self._adopt(self.records[trial_id].model_copy(update={"adjusted": adjusted}))
        if failure.remedy is Remedy.STOP_SWEEP:
            self.give_up(f"{trial_id}: {failure.error}")
        self._again(trial_id)
        return failure.remedy

    def _again(self, trial_id: str) -> None:
        self._live.discard(trial_id)
        self._queue.appendleft(trial_id)
        self._tell_ended(trial_id)

    def give_up(self, problem: str) -> None:
        """No trial can run here and now: end the session, and leave all for a resume."""
        self.problem, self.gave_up = problem, True
        self.interrupt()

    def interrupt(self) -> None:
        """Propose and retry nothing more; what runs is left unfinished, for a resume."""
        self.interrupted = True

    def release(self) -> None:
        """The session ends: what still runs is unfinished in the books."""
        for trial_id in sorted(self._live):
            self._close_attempt(self.records[trial_id], None)
            self._tell_ended(trial_id)
        self._live.clear()

    # -- books --

    def _finish(self, trial_id: str, state: TrialState, reason: str, step: int | None) -> None:
        self._close_attempt(self.records[trial_id], None)
        update = {"state": state, "reason": reason, "end_step": step}
        record = self.records[trial_id].model_copy(update=update)
        self._adopt(record)
        self._live.discard(trial_id)
        reached("driver:finished")
        self._study.tell(record, self._curves[trial_id])
        reached("driver:told")
        self._tell_ended(trial_id)

    def _diverge(self, trial_id: str, value: float, step: int) -> None:
        said = Failure(f"{self.spec.metric} is {value}", Remedy.DIVERGED, Cause.BUG)
        self._close_attempt(self.records[trial_id], said)
        self._finish(trial_id, TrialState.FAILED, f"diverged: {said.error}", step)

    def _is_divergence(self, value: float) -> bool:
        limit = self.spec.failure.diverged_above
        return not math.isfinite(value) or (limit is not None and value > limit)

    def _close_attempt(
        self, record: TrialRecord, failure: Failure | None, ended: float | None = None
    ) -> None:
        """Mark the newest attempt as ended (now), if it is open, and the trial as waiting."""
        update: dict[str, object] = {"state": TrialState.PENDING}
        if record.attempts and record.attempts[-1].ended is None:
            end: dict[str, object] = {"ended": ended or time.time()}
            if failure is not None:
                end |= {"error": failure.error, "remedy": failure.remedy, "cause": failure.cause}
                end["step"] = self._last_step(record.id)
            last = record.attempts[-1].model_copy(update=end)
            update["attempts"] = (*record.attempts[:-1], last)
        self._adopt(record.model_copy(update=update))

    def _adopt(self, record: TrialRecord) -> None:
        self.records[record.id] = record
        self._curves.setdefault(record.id, [])
        write_trial(self.paths.trial(record.id), record)

    def _tell_ended(self, trial_id: str) -> None:
        for observer in self.observers:
            observer.trial_ended(self.records[trial_id])

    def _note(self, trial_id: str, report: Report) -> None:
        self._reported.setdefault(trial_id, set()).update(report.metrics)
        value = report.metrics.get(self.spec.metric)
        curve = self._curves[trial_id]
        if value is not None and math.isfinite(value):
            kept = [(s, v) for s, v in curve if s < report.step]
            curve[:] = [*kept, (report.step, value)]

    def _last_step(self, trial_id: str) -> int | None:
        curve = self._curves[trial_id]
        return curve[-1][0] if curve else None

    def _value(self, trial_id: str) -> float | None:
        curve = self._curves[trial_id]
        return curve[-1][1] if curve else None

    def _clock(self, report: Report) -> int:
        return int(report.metrics.get(self.spec.scheduler.time_attr, report.step))

    def _score(self, value: float) -> float:
        return value if self.spec.mode == "max" else -value
