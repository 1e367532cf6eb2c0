"""The books of a sweep: every trial's record, curve and outcome, on the disk before anyone is told.

`tuning.controller.sweep` decides what is written in them.
"""

from __future__ import annotations

import math
import time

from results.analysis.outcome_constraints import with_violations
from results.analysis.replicates import (
    ReplicateGroups,
    combined_record,
    mean_curve,
    mean_values,
    replicate_id,
)
from results.paths import SweepPaths
from results.records.failures import Cause, Failure, Remedy
from results.records.trial import (
    Report,
    TrialRecord,
    TrialState,
    read_reports,
    read_trials,
    write_trial,
)
from results.storage.fault_injection import fault_point
from results.storage.fencing import Fence, NullFence
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.attempts import claim_next, closed
from tuning.controller.events import Observers
from tuning.controller.resources.budget import BudgetTracker
from tuning.controller.scheduler_adapter import SchedulerAdapter
from tuning.controller.sweep_dir.trial_cache import TrialCache, copy_trial
from tuning.controller.trial_jobs import trial_identity
from tuning.search.schedulers import Decision
from tuning.search.study import Curve, SweepStudy, derive_seed


class TrialTable:
    """What is known of a sweep's trials.

    Attributes:
        records: every trial by id, as it is on disk.
        observers: are told what happens.
        reuse: trials of other sweeps that are taken instead of run.
        tenure: asked before every write, so that a driver that was taken for dead writes nothing.
    """

    def __init__(self, spec: SweepSpec, paths: SweepPaths, study: SweepStudy) -> None:
        self.spec, self.paths = spec, paths
        self.records: dict[str, TrialRecord] = {}
        self.observers = Observers()
        self.fence: Fence = NullFence()
        self.reuse = TrialCache(())
        self._study = study
        self._scheduler = SchedulerAdapter(spec)
        self._budget = BudgetTracker(spec.budget, spec.mode)
        self._replicates = ReplicateGroups(spec.replicates)
        self._live: set[str] = set()
        self._moving: set[str] = set()
        self._curves: dict[str, Curve] = {}
        self._reported: dict[str, set[str]] = {}

    def _read_back(self) -> tuple[dict[str, list[Report]], dict[str, tuple[Report, Decision]]]:
        """Fill the books, the rungs and the study from the sweep folder.

        Returns:
            What each trial had reported; and what `SchedulerAdapter.replay` returns.
        """
        records = read_trials(self.paths)
        claim_next(self.paths, records)
        told = {r.id: read_reports(self.paths.trial(r.id), r.end_step) for r in records}
        for record in records:
            self.records[record.id], self._curves[record.id] = record, []
            for report in told[record.id]:
                self._note(record.id, report)
            self._budget.record_trial(record)
            self._replicates.add(record)
        undecided = self._scheduler.replay((r, p) for r in records for p in told[r.id])
        self._study.rebuild(self._jointly(n) for n in sorted({r.number for r in records}))
        for number, params in self._study.proposals({r.number for r in records}):
            # the driver was killed between proposal and record
            self._save(self._new_record(number, params))
        return told, undecided

    def _new_record(
        self, number: int, params: dict[str, object], replicate: int = 0
    ) -> TrialRecord:
        config, seed = self.spec.nest(params), derive_seed(self.spec.seed, number)
        seed = derive_seed(seed, replicate) if replicate else seed
        return TrialRecord(
            id=replicate_id(number, replicate),
            number=number,
            replicate=replicate,
            params=params,
            config=config,
            seed=seed,
            created=time.time(),
            identity=trial_identity(self.spec, config, seed),
        )

    def _reused(self, record: TrialRecord) -> bool:
        """Whether another sweep had run just this trial: then it is finished in the books."""
        if (found := self.reuse.find(record)) is None:
            return False
        self._save(record)
        self._scheduler.on_trial_resume(record.id)
        self.observers.trial_started(record)
        for report in (reports := copy_trial(found, self.paths.trial(record.id))):
            self._note(record.id, report)
            self._scheduler.decide(record, report)
            self.observers.trial_reported(record, report)
        reason = f"reused from {found.source}"
        self._finish(record.id, TrialState.COMPLETED, reason, reports[-1].step)
        return True

    def _jointly(self, number: int) -> tuple[TrialRecord, Curve, list[float] | None]:
        """What the searcher is told of a configuration."""
        group = self._replicates.of(number)
        curve = mean_curve([self._curves[r.id] for r in group])
        finals = mean_values(self._scheduler.finals(r.id) for r in group)
        return combined_record(group, self.spec.replicates), curve, finals

    def _pause(self, trial_id: str, step: int) -> None:
        reason = f"{self.spec.scheduler.name} at step {step}"
        update = {"state": TrialState.PAUSED, "reason": reason}
        record = closed(self.records[trial_id]).model_copy(update=update)
        self._save(with_violations(record, self.paths, self.spec.outcome_constraints))

    def move(self, trial_id: str) -> None:
        """The trial is told to leave after its report, and is to go on with more workers."""
        self._moving.add(trial_id)

    def _has_moved(self, trial_id: str) -> bool:
        """Whether a trial ended because it was told to move; then it waits in the books."""
        if trial_id not in self._moving:
            return False
        waits = {"reason": "goes on with more workers"}
        self._save(closed(self.records[trial_id]).model_copy(update=waits))
        return True

    def on_leak(self, key: str, said: str) -> None:
        """An attempt (`TrialJob.key`) left memory behind, for which its lane was replaced."""
        trial_id, _, number = key.rpartition(".")
        record = self.records[trial_id]
        attempts = tuple(
            a.model_copy(update={"leak": said}) if a.number == int(number) else a
            for a in record.attempts
        )
        self._save(record.model_copy(update={"attempts": attempts}))

    def _finish(self, trial_id: str, state: TrialState, reason: str, step: int | None) -> None:
        update = {"state": state, "reason": reason, "end_step": step}
        record = closed(self.records[trial_id]).model_copy(update=update)
        record = with_violations(record, self.paths, self.spec.outcome_constraints)
        self._save(record)
        self._live.discard(trial_id)
        self._scheduler.on_trial_complete(trial_id)
        fault_point("driver:finished")
        told, curve, finals = self._jointly(record.number)
        if told.state.finished:
            self._study.tell(told, curve, finals)
        fault_point("driver:told")
        self._tell_ended(trial_id)

    def _diverge(self, trial_id: str, fault: str, step: int) -> None:
        said = Failure(fault, Remedy.DIVERGED, Cause.BUG)
        self._save(closed(self.records[trial_id], said, step=self._last_step(trial_id)))
        self._finish(trial_id, TrialState.FAILED, f"diverged: {fault}", step)

    def _save(self, record: TrialRecord) -> None:
        self.fence.check()
        self.records[record.id] = record
        self._curves.setdefault(record.id, [])
        self._budget.record_trial(record)
        self._replicates.add(record)
        write_trial(self.paths.trial(record.id), record)

    def _tell_ended(self, trial_id: str) -> None:
        self.observers.trial_ended(self.records[trial_id])

    def _note(self, trial_id: str, report: Report) -> None:
        self._reported.setdefault(trial_id, set()).update(report.metrics)
        value = report.metrics.get(self.spec.metric)
        curve = self._curves[trial_id]
        if value is not None and math.isfinite(value):
            while curve and curve[-1][0] >= report.step:
                curve.pop()
            curve.append((report.step, value))
            self._budget.record_value(trial_id, value)

    def _last_step(self, trial_id: str) -> int | None:
        curve = self._curves[trial_id]
        return curve[-1][0] if curve else None
