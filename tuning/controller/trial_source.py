"""Picks the trial that starts next: a waiting or paused one, another seed, or a new proposal."""

from __future__ import annotations

import logging

from results.checkpoints.cleanup import copy_checkpoint
from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.trial import InheritedWeights, TrialRecord, read_trial
from results.storage.fault_injection import fault_point
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.attempts import new_record
from tuning.controller.resources.budget import Limit
from tuning.controller.resources.placement import Allocation, FindAllocation
from tuning.controller.resources.trial_layouts import TrialLayouts
from tuning.controller.scheduler_adapter import SchedulerAdapter
from tuning.controller.trial_table import TrialQueue, TrialTable
from tuning.search.compatibility import is_complete
from tuning.search.schedulers import Exploit
from tuning.search.study.study import SweepStudy

log = logging.getLogger(__name__)
NextTrial = tuple[TrialRecord, Allocation | None]
"""A trial and its allocation; without one, its model fits no layout."""


class TrialSource:
    """Picks the next trial and finds its allocation.

    The order is: trials that wait, paused trials that the scheduler resumes, configurations that
    lack a replicate, new proposals. After a limit of the budget nothing new is proposed.
    """

    def __init__(
        self,
        table: TrialTable,
        queue: TrialQueue,
        scheduler: SchedulerAdapter,
        study: SweepStudy,
        layouts: TrialLayouts,
    ) -> None:
        self._table, self._queue, self._layouts = table, queue, layouts
        self._scheduler, self._study = scheduler, study

    def has_next(self, limit: Limit | None) -> bool:
        """Whether any trial is left to start.

        Args:
            limit: of the budget that is reached.
        """
        if limit is None:
            return True
        resumes = self.next_to_resume(limit) is not None
        lacks_replicate = self._table.replicates.next_replicate() is not None
        return not limit.hard and (resumes or bool(self._queue.waiting) or lacks_replicate)

    def next(self, limit: Limit | None, find: FindAllocation) -> NextTrial | None:
        """The next trial with its allocation; None if none can start now.

        Trials that wait and have no allocation now are skipped, except for those whose layout needs
        more workers than others: no other trial takes the workers that become free.
        """
        for waiting in self._queue.waiting:
            record = self._table.records[waiting]
            if (following := self._allocated(record, find)) is not None:
                self._queue.waiting.remove(waiting)
                return following
            if self._needs_more(record):
                return None
        if (resumed := self.next_to_resume(limit)) is not None:
            record = self._table.records[resumed]
            if self._allocated(record, find) is None:
                return None
            return self._allocated(self._resumed_record(resumed), find, begins=True)
        if find((), 1) is None:
            return None
        if (replicate := self._replicate()) is not None:
            return self._allocated(replicate, find, begins=True)
        return None if limit is not None else self._allocated(self._proposal(), find, begins=True)

    def _needs_more(self, record: TrialRecord) -> bool:
        fewest = self._layouts.fewest_workers(record)
        return fewest is not None and fewest > self._table.spec.resources.min_workers

    def _allocated(
        self, record: TrialRecord, find: FindAllocation, *, begins: bool = False
    ) -> NextTrial | None:
        """A trial with the allocation of its layout; None if it has to wait.

        Args:
            record: of the trial.
            find: gives the allocation.
            begins: whether it has left the queue, or was never there, and waits there from now on
                if it has to.
        """
        fewest = self._layouts.fewest_workers(record)
        if fewest is None:
            return record, None
        allocation = find(record.excluded_machines, fewest)
        if allocation is None:
            if begins:
                self._table.save(record)
                self._queue.waiting.append(record.id)
            return None
        layout = self._layouts.choose(record, allocation.workers)
        return record, allocation if layout is None else allocation.with_layout(layout)

    def next_to_resume(self, limit: Limit | None, pausing: str | None = None) -> str | None:
        """The paused trial that continues before a new one is proposed, if any.

        Args:
            limit: of the budget that is reached.
            pausing: a running trial that counts as paused.
        """
        idle = self._queue.is_idle(without=pausing)
        return self._scheduler.next_to_resume(more=limit is None, idle=idle)

    def _proposal(self) -> TrialRecord:
        self._table.check_owner()
        scheduler = self._scheduler
        proposed = self._study.ask(scheduler.curves, misleading=scheduler.misleading)
        fault_point("driver:asked")
        return new_record(self._table.spec, *proposed)

    def _resumed_record(self, trial_id: str) -> TrialRecord:
        """The record of a paused trial, with another's weights if the scheduler says so."""
        table, record = self._table, self._table.records[trial_id]
        exploit = self._scheduler.exploit(trial_id, table.records)
        if exploit is None:
            return record
        return inherit(record, table.last_step(trial_id) or 0, exploit, table.spec, table.paths)

    def _replicate(self) -> TrialRecord | None:
        """The next seed of a configuration that lacks one."""
        if (found := self._table.replicates.next_replicate()) is None:
            return None
        sibling, replicate = found
        return new_record(self._table.spec, sibling.number, dict(sibling.params), replicate)


def inherit(
    record: TrialRecord, step: int, exploit: Exploit, spec: SweepSpec, paths: SweepPaths
) -> TrialRecord:
    """Copy the donor's newest checkpoint to a paused trial.

    If the new parameters are not in the space (they violate a constraint, or belong to another
    option), the donor's parameters are used. A repetition after a crash gives the same result.

    Args:
        record: of the trial.
        step: the trial's last one.
        exploit: the scheduler's decision.
        spec, paths: of the sweep.

    Returns:
        The record with the new parameters, which is not written; unchanged if the donor has no
        checkpoint.
    """
    found = newest_intact(paths.trial(exploit.donor))
    if found is None:
        log.warning("%s keeps its own weights: %s has no checkpoint", record.id, exploit.donor)
        return record
    copy_checkpoint(paths.trial(record.id), found)
    after = exploit.params
    if not is_complete(spec, after):
        after = read_trial(paths.trial(exploit.donor)).params
    inherited = InheritedWeights(
        step=step,
        donor=exploit.donor,
        donor_step=found.step,
        before=record.params,
        after=after,
    )
    update = {
        "params": after,
        "config": spec.nest(after),
        "lineage": (*record.lineage, inherited),
    }
    return record.model_copy(update=update)
