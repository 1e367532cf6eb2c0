"""Allocates workers to attempts: number of concurrent trials, workers of each, and machines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from results.records.failures import Remedy
from results.records.machines import Machine
from trainables.job import Answer, TrialJob
from tuning.controller.gpu_sharing import GpuSharing
from tuning.controller.resources.capacity import Capacity, StartWatch
from tuning.controller.resources.placement import Allocation, describe_nodes, workers_per_gpu
from tuning.controller.sweep import SweepController

if TYPE_CHECKING:
    from trainables.launch.pool import WorkerPool

BROKER_FAILED = "the broker between driver and workers died"


class WorkerManager:
    """Connects a sweep to its worker pool.

    Attributes:
        pool: runs the attempts.
        broker: the actor through which trials report and are answered.
        sharing: chooses the part of a GPU that attempts have.
        broker_lost: why it died, so that a new broker and new workers are needed; else empty.
    """

    def __init__(
        self, run: SweepController, pool: WorkerPool, broker: Any, capacity: Capacity
    ) -> None:
        self.broker, self.broker_lost = broker, ""
        self._run, self.pool, self._capacity = run, pool, capacity
        self._sizes: dict[str, int] = {}
        self._old: dict[str, int] = {}  # slots of attempts that have another part of a GPU
        self.sharing = GpuSharing(run, capacity)
        self._starts = StartWatch(capacity, run.observers.message)

    def find_allocation(
        self, excluded: Collection[Machine] = (), fewest: int = 1
    ) -> Allocation | None:
        """The allocation of one more attempt; None if it does not fit now.

        Args:
            fewest: workers that it needs, if it needs more than others.
            excluded: machines that the attempt should not run on. Machines that have left the
                cluster do not count. If the other machines could never hold the attempt, it runs on
                an excluded one.
        """
        if self.broker_lost:
            return None
        size = self._capacity.next_trial_workers({**self._sizes, **self._old}.values(), fewest)
        if size is None:
            return None
        allocation = self._capacity.placement.allocation
        present = self._capacity.present_machines(excluded)
        if not present:
            return allocation(size)
        ids = {m.id for m in present}
        slots = self._capacity.slots_excluding(ids)
        fewest = max(fewest, self._run.spec.resources.min_workers)
        if slots < fewest:
            return replace(allocation(size), kept_off=present, in_place=True)
        size = min(size, slots - self._workers_excluding(ids))
        return None if size < fewest else replace(allocation(size), kept_off=present)

    def _workers_excluding(self, machines: Collection[str]) -> int:
        """Workers with an attempt that run on other machines, or on unknown ones."""
        known = self.pool.machines()
        return sum(
            size - sum(m in machines for m in known.get(key, ()))
            for key, size in self._sizes.items()
        )

    def start(self, job: TrialJob) -> None:
        """Start an attempt."""
        self._capacity.mark_activity()
        self._sizes[job.key] = job.workers
        self._starts.begin(job.key, job.workers)
        self.pool.start(job)

    def release(self, job: TrialJob, *, unusable: bool) -> None:
        """An attempt has ended; see `WorkerPool.release`."""
        self.pool.release(job.key, unusable=unusable)
        del self._sizes[job.key]
        self._old.pop(job.key, None)
        if self.sharing.on_end(job):
            self._use_share()
        self._starts.end(job.key)
        self._capacity.mark_activity()
        self._capacity.refresh_soon()

    def _use_share(self) -> None:
        """Begin no attempt on a GPU on which one may run that has another part of it."""
        placement = self._capacity.placement
        self.pool.use_gpus(placement.gpus_per_worker)
        self._old = dict.fromkeys(self._sizes, workers_per_gpu(placement.gpus_per_worker))
        self._run.observers.concurrency_known(placement.concurrency)

    def answer(self, job: TrialJob) -> Answer:
        """The answer to a trial that continues: PAUSE if it continues with more workers."""
        most = self._run.spec.resources.max_workers
        larger = self._run.layouts.choose(self._run.records[job.trial_id], most)
        if larger is not None and larger.num_ranks <= job.workers:
            return Answer.CONTINUE

        def unused() -> int:  # workers that are up and have no attempt
            return max(0, self.pool.workers_up() - sum(self._sizes.values()))

        if not self._capacity.should_grow(job.workers, unused):
            return Answer.CONTINUE
        self._run.queue.moving.add(job.trial_id)
        return Answer.PAUSE

    def on_start_failed(self, job: TrialJob, error: str) -> None:
        """The workers of an attempt did not come up.

        The attempt waits for workers of other attempts, or is tried with fewer workers if it may
        have fewer. If neither is possible, the session ends.
        """
        self.broker_lost = self.broker_lost or self.pool.broker_error()
        if self.broker_lost:
            self._run.on_failed(job.trial_id, error, began=False)
            return
        fewest = self._run.layouts.fewest_workers(self._run.records[job.trial_id])
        fewer = job.workers - 1 if job.workers > (fewest or 0) else 0
        if available := self.pool.workers_up() + fewer:
            self._capacity.cap_workers(available)
            self._run.on_failed(job.trial_id, error, began=False)
        else:
            self._run.give_up(f"no trial can start: {self._shortage(job)}{error}")

    def _shortage(self, job: TrialJob) -> str:
        """That an attempt needs more workers than there are, in words; empty if it does not."""
        if job.workers <= (slots := self._capacity.worker_slots()):
            return ""
        layout = job.layout_on(job.workers)
        its = f"with layout {layout.as_written()} " if layout.shares_model else ""
        return (
            f"{job.trial_id} {its}needs {self._capacity.placement.request_of(job.workers)}, and "
            f"{slots} of {job.workers} workers fit {describe_nodes(self._capacity.nodes())}; "
        )

    def on_broker_failed(self, job: TrialJob) -> Remedy | None:
        """The broker has no more events of an attempt, most likely because it died.

        Returns:
            The remedy; None if the attempt does not count as failed.
        """
        self.broker_lost = self.broker_lost or self.pool.broker_error()
        return self._run.on_failed(job.trial_id, BROKER_FAILED, began=not self.broker_lost)

    def poll(self) -> None:
        """Release idle workers, and cancel starts for which there is no room; call it often."""
        running = self._sizes.values()
        most = 0 if self._capacity.is_idle else self._capacity.max_concurrent_trials()
        self.pool.retire_idle(max(0, most - len(running)))
        self.pool.poll()
        current = [self._sizes[key] for key in self._sizes.keys() - self._old.keys()]
        if self._capacity.is_overcommitted(current):
            self.pool.cancel_starts()
        self._capacity.track_free_slots(running)
        self._starts.poll(running, self.pool.machines)
        self._record_leaks()

    def hand_over(self) -> bool:
        """Leave the workers to another sweep; False if they cannot take its trials."""
        self._record_leaks()
        return not self.broker_lost and self.pool.hand_over()

    def close(self) -> None:
        """End all workers; bounded in time."""
        self.pool.close()
        self._record_leaks()

    def _record_leaks(self) -> None:
        for leak in self.pool.take_leaks():
            self._run.lifecycle.record_leak(leak.key, leak.message)
