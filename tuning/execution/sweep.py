"""A running sweep: which trial is next, what becomes of it at a report, at its end, at a failure.

Knows nothing of Ray: `tuning.execution.ray_tune` drives it, and the tests do without a cluster.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from results.failures import Remedy
from results.faultpoints import reached
from results.machines import Machine
from results.mirror import Place
from results.paths import SweepPaths
from results.records import (
    Report,
    TrialRecord,
    TrialState,
)
from results.replicates import due
from search_spaces.errors import suggest
from search_spaces.schema import SweepSpec
from trainables.worker import TrialJob
from tuning.execution.attempts import begun, closed
from tuning.execution.books import Books
from tuning.execution.budget import BY_HAND, Limit
from tuning.execution.inherit import inherit
from tuning.execution.job import make_job
from tuning.execution.placement import Berth, FindBerth, unplaced
from tuning.execution.verdict import NOWHERE, diagnose, shrink, verdict
from tuning.search.schedulers import Decision
from tuning.search.study import SweepStudy


class SweepRun(Books):
    """One session of a sweep, from `run` or `resume` to its end.

    Attributes:
        stopped: it was ended by hand.
        interrupted: nothing more is proposed or retried.
        problem: what went wrong beside the trials, one line for the summary.
        gave_up: whether the session ended because of it.
        mended: what was damaged in the folder and what became of it, a line each.
        mirror: where checkpoints are kept in object storage.
    """

    def __init__(
        self,
        spec: SweepSpec,
        paths: SweepPaths,
        study: SweepStudy,
        cache: str,
        spent_s: float = 0.0,
    ) -> None:
        super().__init__(spec, paths, study)
        self.interrupted = self.stopped = False
        self.problem: str | None = None
        self.gave_up = False
        self.mended: list[str] = []
        self.mirror: Place | None = None
        self._cache = cache
        self._queue: deque[str] = deque()
        self._to_stop: set[str] = set()
        self._started = time.monotonic() - spent_s

    # -- what was, before this session --

    def restore(self) -> None:
        """Rebuild from the sweep folder: unfinished trials are queued, rungs and study refilled."""
        heard, undecided = self._read_back()
        for record in sorted(self.records.values(), key=lambda r: r.number):
            if record.state.finished:
                self._judge.gone(record.id)
            elif record.state.under_way or record.id in undecided:
                self._adopt(closed(record, ended=heard.get(record.id)))
                self._take_up(record.id, *undecided.get(record.id, (None, Decision.CONTINUE)))

    def _take_up(self, trial_id: str, report: Report | None, decision: Decision) -> None:
        """Queue what a killed driver left, unless its last report was to end or pause it."""
        if report is None or decision is Decision.CONTINUE:
            self._judge.went_on(trial_id)
            self._queue.append(trial_id)
        elif decision is Decision.PAUSE:
            self._pause(trial_id, report.step)
        else:
            self._conclude(trial_id, report.step, decision)

    # -- what is next --

    @property
    def elapsed_s(self) -> float:
        """Seconds of wall-clock that the sweep spent, earlier sessions included."""
        return time.monotonic() - self._started

    @property
    def limit(self) -> Limit | None:
        """The limit of the budget that is reached."""
        if self.stopped:
            return BY_HAND
        return self._tally.limit(self.elapsed_s, self._study.regret_bound)

    @property
    def finished(self) -> bool:
        """Nothing runs and nothing is left to run."""
        return not self._live and not self._may_begin(self.limit)

    def _may_begin(self, limit: Limit | None) -> bool:
        """Whether a trial may begin: one that waits, or a new one."""
        if self.interrupted or limit is None:
            return not self.interrupted
        called = self._called(limit) is not None
        return not limit.hard and (called or bool(self._queue) or self._replicate() is not None)

    def next_trial(self, find: FindBerth | None = None) -> TrialJob | None:
        """The next attempt to launch, in a berth that is found for it; None for none now."""
        find = find or unplaced(self.spec.resources)
        while self._may_begin(limit := self.limit):
            if (following := self._next_record(limit, find)) is None:
                return None
            record, berth = following
            if record.attempts or not self._reused(record):
                return self._begin(record, berth)
        return None

    def _next_record(
        self, limit: Limit | None, find: FindBerth
    ) -> tuple[TrialRecord, Berth] | None:
        """What is next, and its berth; what waits and has none now is passed over."""
        for waiting in self._queue:
            if (berth := find(self.records[waiting].blamed)) is not None:
                self._queue.remove(waiting)
                return self.records[waiting], berth
        if (called := self._called(limit)) is not None:
            berth = find(self.records[called].blamed)
            return None if berth is None else (self._called_record(called), berth)
        if (berth := find(())) is None:
            return None
        if (replicate := self._replicate()) is not None:
            return replicate, berth
        return None if limit is not None else (self._proposed(), berth)

    def _proposed(self) -> TrialRecord:
        self.tenure.check()
        proposed = self._study.ask(self._judge.curves)
        reached("driver:asked")
        return self._new_record(*proposed)

    def _called(self, limit: Limit | None) -> str | None:
        """The paused trial that goes on before a new one is proposed, if any."""
        idle = not self._live and not self._queue
        return self._judge.call(more=limit is None, idle=idle)

    def _called_record(self, trial_id: str) -> TrialRecord:
        record = self.records[trial_id]
        exploit = self._judge.exploit(trial_id, self.records)
        if exploit is None:
            return record
        return inherit(record, self._last_step(trial_id) or 0, exploit, self.spec, self.paths)

    def _replicate(self) -> TrialRecord | None:
        """The next seed of a configuration that has not had all of them."""
        found = due(self.records.values(), self.spec.replicates)
        if found is None:
            return None
        first, replicate = found
        return self._new_record(first.number, dict(first.params), replicate)

    def _begin(self, record: TrialRecord, berth: Berth) -> TrialJob:
        record = begun(record, berth)
        number, paths = record.attempts[-1].number, self.paths.trial(record.id)
        self._adopt(record)
        reached("driver:recorded")
        paths.attempt(number).mkdir(parents=True, exist_ok=True)
        reached("driver:claimed")
        self._live.add(record.id)
        self._moving.discard(record.id)
        self._judge.went_on(record.id)
        for observer in self.observers:
            observer.trial_started(record)
        return make_job(
            self.spec,
            trial_id=record.id,
            folder=paths.root,
            config={**record.config, **record.adjusted},
            seed=record.seed,
            attempt=number,
            cache=self._cache,
            workers=berth.workers,
            avoid=berth.avoid,
            rungs=self._judge.rungs,
            mirror=self.mirror,
        )

    # -- what happened --

    def on_report(self, trial_id: str, report: Report) -> Decision:
        """Note a report and decide; a trial that is not to go on is finished in the books."""
        if trial_id not in self._live:
            return Decision.STOP
        self._note(trial_id, report)
        for observer in self.observers:
            observer.reported(self.records[trial_id], report)
        if (fault := self._judge.fault(report)) is not None:
            self._diverge(trial_id, fault, report.step)
            return Decision.STOP
        return self._conclude(
            trial_id, report.step, self._judge.decide(self.records[trial_id], report)
        )

    def _conclude(self, trial_id: str, step: int, decision: Decision) -> Decision:
        name = self.spec.scheduler.name
        if decision is Decision.STOP:
            self._finish(trial_id, TrialState.STOPPED, f"{name} at step {step}", step)
        elif decision is Decision.COMPLETE:
            self._finish(trial_id, TrialState.COMPLETED, f"max_t at step {step}", step)
        elif cause := self._cause_to_stop(trial_id):
            self._finish(trial_id, TrialState.STOPPED, f"{cause} at step {step}", step)
            return Decision.STOP
        elif decision is Decision.PAUSE:
            return self._pause_or_go_on(trial_id, step)
        return decision

    def _cause_to_stop(self, trial_id: str) -> str | None:
        by_hand = self.stopped or trial_id in self._to_stop
        limit = BY_HAND if by_hand else self._tally.hard_limit(self.elapsed_s)
        return limit.cause if limit else None

    def _pause_or_go_on(self, trial_id: str, step: int) -> Decision:
        """Pause a trial, unless its turn to go on is now."""
        self._live.discard(trial_id)
        if (
            self._called(self.limit) == trial_id
            and self._judge.exploit(trial_id, self.records) is None
        ):
            self._judge.went_on(trial_id)
            self._live.add(trial_id)
            return Decision.CONTINUE
        self._pause(trial_id, step)
        self._tell_ended(trial_id)
        return Decision.PAUSE

    def on_ended(self, trial_id: str) -> None:
        """The trial's code returned by itself."""
        if trial_id not in self._live:
            return
        if self._has_moved(trial_id):
            self._again(trial_id)
            return
        curve = self._curves[trial_id]
        if curve:
            self._finish(trial_id, TrialState.COMPLETED, "ran to its end", curve[-1][0])
            return
        said = self._reported.get(trial_id, set())
        hint = suggest(self.spec.metric, said) if said else "; it reported nothing"
        self._finish(trial_id, TrialState.FAILED, f"never reported {self.spec.metric}{hint}", None)

    def on_failed(
        self,
        trial_id: str,
        error: str,
        *,
        began: bool = True,
        machines: Mapping[int, Machine] = NOWHERE,
    ) -> Remedy | None:
        """The trial's processes failed; it is queued again while its retries last.

        A trial that had not begun is not to blame: that attempt does not count as a failure.

        Args:
            trial_id: of the trial.
            error: one line.
            began: whether it had begun.
            machines: on which each of its ranks was, as far as that is known.

        Returns:
            What the failure was taken for, None when it was none of the trial's.
        """
        if trial_id not in self._live:
            return None
        record, paths = self.records[trial_id], self.paths.trial(trial_id)
        failure = None
        if began:
            came_to = self._last_step(trial_id)
            failure = diagnose(error, paths, record, came_to, self.spec, machines)
        self._adopt(closed(record, failure, step=self._last_step(trial_id)))
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

    def add(self, params: dict[str, object], tag: str) -> None:
        """Queue a configuration, once for each tag; parameters that it lacks are proposed."""
        self._study.enqueue(params, tag)
        while self._study.has_waiting:
            self._adopt(record := self._new_record(*self._study.ask()))
            self._queue.append(record.id)

    def stop(self, trial_id: str | None) -> bool:
        """End a trial, or all and the sweep; False while what runs has not reported yet."""
        self.stopped |= trial_id is None
        unfinished = [i for i, r in self.records.items() if not r.state.finished]
        asked = {i for i in unfinished if i == trial_id or trial_id is None}
        for waiting in asked - self._live:
            self._queue = deque(i for i in self._queue if i != waiting)
            self._finish(waiting, TrialState.STOPPED, BY_HAND.cause, self._last_step(waiting))
        self._to_stop |= asked
        return asked.isdisjoint(self._live)

    def release(self) -> None:
        """The session ends: what still runs is unfinished in the books.

        What is paused stays so: a longer session may call it.
        """
        for trial_id in sorted(self._live):
            self._adopt(closed(self.records[trial_id]))
            self._tell_ended(trial_id)
        self._live.clear()
