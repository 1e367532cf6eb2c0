"""Which trial of a sweep is next: one that waits, one that is called, another seed, a new one.

`tuning.controller.sweep` says what becomes of it.
"""

from __future__ import annotations

import time
from collections import deque

from results.checkpoints.trial_mirror import MirrorLocation
from results.paths import SweepPaths
from results.records.trial import TrialRecord
from results.storage.fault_injection import fault_point
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from tuning.controller.attempts import begun
from tuning.controller.resources.budget import USER_STOP, Limit
from tuning.controller.resources.placement import Allocation, FindAllocation, default_allocation
from tuning.controller.trial_jobs import make_job
from tuning.controller.trial_table import TrialTable
from tuning.controller.weight_inheritance import inherit
from tuning.search.study import SweepStudy


class TrialQueue(TrialTable):
    """The books, and whose turn it is.

    Attributes:
        stopped: the sweep was ended by hand.
        interrupted: nothing more is proposed or retried.
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
        self.mirror: MirrorLocation | None = None
        self._cache = cache
        self._queue: deque[str] = deque()
        self._started = time.monotonic() - spent_s

    @property
    def elapsed_s(self) -> float:
        """Seconds of wall-clock that the sweep spent, earlier sessions included."""
        return time.monotonic() - self._started

    @property
    def limit(self) -> Limit | None:
        """The limit of the budget that is reached."""
        if self.stopped:
            return USER_STOP
        return self._budget.limit(self.elapsed_s, self._study.regret_bound)

    @property
    def finished(self) -> bool:
        """Nothing runs and nothing is left to run."""
        return not self._live and not self._may_begin(self.limit)

    def _may_begin(self, limit: Limit | None) -> bool:
        """Whether a trial may begin: one that waits, or a new one."""
        if self.interrupted or limit is None:
            return not self.interrupted
        called = self._next_to_resume(limit) is not None
        return not limit.hard and (called or bool(self._queue) or self._replicate() is not None)

    def next_trial(self, find: FindAllocation | None = None) -> TrialJob | None:
        """The next attempt to launch, in a berth that is found for it; None for none now."""
        find = find or default_allocation(self.spec.resources)
        while self._may_begin(limit := self.limit):
            if (following := self._next_record(limit, find)) is None:
                return None
            record, allocation = following
            if record.attempts or not self._reused(record):
                return self._begin(record, allocation)
        return None

    def _next_record(
        self, limit: Limit | None, find: FindAllocation
    ) -> tuple[TrialRecord, Allocation] | None:
        """What is next, and its berth; what waits and has none now is passed over."""
        for waiting in self._queue:
            if (allocation := find(self.records[waiting].excluded_machines)) is not None:
                self._queue.remove(waiting)
                return self.records[waiting], allocation
        if (called := self._next_to_resume(limit)) is not None:
            allocation = find(self.records[called].excluded_machines)
            return None if allocation is None else (self._called_record(called), allocation)
        if (allocation := find(())) is None:
            return None
        if (replicate := self._replicate()) is not None:
            return replicate, allocation
        return None if limit is not None else (self._proposed(), allocation)

    def _proposed(self) -> TrialRecord:
        self.fence.check()
        proposed = self._study.ask(self._scheduler.curves)
        fault_point("driver:asked")
        return self._new_record(*proposed)

    def _next_to_resume(self, limit: Limit | None) -> str | None:
        """The paused trial that goes on before a new one is proposed, if any."""
        idle = not self._live and not self._queue
        return self._scheduler.next_to_resume(more=limit is None, idle=idle)

    def _called_record(self, trial_id: str) -> TrialRecord:
        record = self.records[trial_id]
        exploit = self._scheduler.exploit(trial_id, self.records)
        if exploit is None:
            return record
        return inherit(record, self._last_step(trial_id) or 0, exploit, self.spec, self.paths)

    def _replicate(self) -> TrialRecord | None:
        """The next seed of a configuration that has not had all of them."""
        if (found := self._replicates.next_replicate()) is None:
            return None
        sibling, replicate = found
        return self._new_record(sibling.number, dict(sibling.params), replicate)

    def _begin(self, record: TrialRecord, allocation: Allocation) -> TrialJob:
        record = begun(record, allocation)
        number, paths = record.attempts[-1].number, self.paths.trial(record.id)
        self._save(record)
        fault_point("driver:recorded")
        paths.attempt(number).mkdir(parents=True, exist_ok=True)
        fault_point("driver:claimed")
        self._live.add(record.id)
        self._moving.discard(record.id)
        self._scheduler.on_trial_resume(record.id)
        self.observers.trial_started(record)
        return make_job(
            self.spec,
            trial_id=record.id,
            folder=paths.root,
            config={**record.config, **record.adjusted},
            seed=record.seed,
            attempt=number,
            cache=self._cache,
            workers=allocation.workers,
            avoid=allocation.avoid,
            rungs=self._scheduler.rungs,
            mirror=self.mirror,
        )
