"""A running sweep: what becomes of its trials at a report, at their end, at a failure, by hand.

Knows nothing of Ray: `tuning.controller.ray_tune.driver` drives it, and the tests do without a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from results.paths import SweepPaths
from results.records.failures import Remedy
from results.records.machines import Machine
from results.records.trial import Report, TrialState
from results.storage.fault_injection import fault_point
from search_spaces.errors import suggest
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.attempts import closed, last_sign
from tuning.controller.failure_policy import NOWHERE, decide, diagnose, shrink
from tuning.controller.resources.budget import USER_STOP
from tuning.controller.trial_queue import TrialQueue
from tuning.search.schedulers import Decision
from tuning.search.study import SweepStudy


class SweepController(TrialQueue):
    """One session of a sweep, from `run` or `resume` to its end.

    Attributes:
        problem: what went wrong beside the trials, one line for the summary.
        gave_up: whether the session ended because of it.
        mended: what was damaged in the folder and what became of it, a line each.
    """

    def __init__(
        self,
        spec: SweepSpec,
        paths: SweepPaths,
        study: SweepStudy,
        cache: str,
        spent_s: float = 0.0,
    ) -> None:
        super().__init__(spec, paths, study, cache, spent_s)
        self.problem: str | None = None
        self.gave_up = False
        self.repaired: list[str] = []
        self._to_stop: set[str] = set()

    # -- what was, before this session --

    def restore(self) -> dict[str, list[Report]]:
        """Rebuild from the sweep folder: unfinished trials are queued, rungs and study refilled.

        Returns:
            What each trial had reported, for who else wants to know: it is read once.
        """
        told, undecided = self._read_back()
        for record in sorted(self.records.values(), key=lambda r: r.number):
            if record.state.finished:
                self._scheduler.on_trial_complete(record.id)
            elif record.state.active or record.id in undecided:
                self._save(closed(record, ended=last_sign(record, told.get(record.id, ()))))
                self._take_up(record.id, *undecided.get(record.id, (None, Decision.CONTINUE)))
        return told

    def _take_up(self, trial_id: str, report: Report | None, decision: Decision) -> None:
        """Queue what a killed driver left, unless its last report was to end or pause it."""
        if report is None or decision is Decision.CONTINUE:
            self._scheduler.on_trial_resume(trial_id)
            self._queue.append(trial_id)
        elif decision is Decision.PAUSE:
            self._pause(trial_id, report.step)
        else:
            self._conclude(trial_id, report.step, decision)

    # -- what happened --

    def on_report(self, trial_id: str, report: Report) -> Decision:
        """Note a report and decide; a trial that is not to go on is finished in the books."""
        if trial_id not in self._live:
            return Decision.STOP
        self._note(trial_id, report)
        self.observers.trial_reported(self.records[trial_id], report)
        if (fault := self._scheduler.fault(report)) is not None:
            self._diverge(trial_id, fault, report.step)
            return Decision.STOP
        return self._conclude(
            trial_id, report.step, self._scheduler.decide(self.records[trial_id], report)
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
        limit = USER_STOP if by_hand else self._budget.hard_limit(self.elapsed_s)
        return limit.stop_reason if limit else None

    def _pause_or_go_on(self, trial_id: str, step: int) -> Decision:
        """Pause a trial, unless its turn to go on is now."""
        self._live.discard(trial_id)
        if (
            self._next_to_resume(self.limit) == trial_id
            and self._scheduler.exploit(trial_id, self.records) is None
        ):
            self._scheduler.on_trial_resume(trial_id)
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
        self._save(closed(record, failure, step=self._last_step(trial_id)))
        fault_point("driver:failed")
        if failure is None:
            self._again(trial_id)
            return None
        over = decide(failure, self.records[trial_id].attempts, self.spec.failure)
        if over is not None:
            self._finish(trial_id, TrialState.FAILED, over, self._last_step(trial_id))
            return failure.remedy
        if failure.remedy is Remedy.SHRINK:
            adjusted = {**record.adjusted, **(shrink(record, self.spec) or {})}
            self._save(self.records[trial_id].model_copy(update={"adjusted": adjusted}))
        if failure.remedy is Remedy.STOP_SWEEP:
            self.give_up(f"{trial_id}: {failure.error}")
        self._again(trial_id)
        return failure.remedy

    def _again(self, trial_id: str) -> None:
        if self.stopped or trial_id in self._to_stop:
            step = self._last_step(trial_id)
            self._finish(trial_id, TrialState.STOPPED, USER_STOP.stop_reason, step)
            return
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
            self._save(record := self._new_record(*self._study.ask()))
            self._queue.append(record.id)

    def stop(self, trial_id: str | None) -> bool:
        """End a trial, or all and the sweep; False while what runs has not reported yet."""
        self.stopped |= trial_id is None
        unfinished = [i for i, r in self.records.items() if not r.state.finished]
        asked = {i for i in unfinished if i == trial_id or trial_id is None}
        for waiting in asked - self._live:
            self._queue = deque(i for i in self._queue if i != waiting)
            self._finish(
                waiting, TrialState.STOPPED, USER_STOP.stop_reason, self._last_step(waiting)
            )
        self._to_stop |= asked
        return asked.isdisjoint(self._live)

    def release(self) -> None:
        """The session ends: what still runs is unfinished in the books.

        What is paused stays so: a longer session may call it.
        """
        for trial_id in sorted(self._live):
            self._save(closed(self.records[trial_id]))
            self._tell_ended(trial_id)
        self._live.clear()
