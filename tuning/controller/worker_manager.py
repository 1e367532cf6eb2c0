"""The processes of a sweep's trials, from the first to the last; up before Ray Tune is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from results.records.failures import Remedy
from results.records.machines import Machine
from trainables.job import Answer, TrialJob
from tuning.controller.resources.capacity import Capacity
from tuning.controller.resources.placement import Allocation, Placement
from tuning.controller.sweep import SweepController

if TYPE_CHECKING:
    from trainables.launch.worker_pool import WorkerPool

LISTENER_DIED = "the trial's driving process died"
_MAILBOXES = 5
"""How often a session replaces its mailbox before it gives up."""
_NOTICED_S = 10.0
"""In less than that Ray Train notices that a worker was killed: it looks every 2 s."""
_SLOW = ("torch", "pandas")
"""What takes long to import and knows nothing of Ray: two threads never import the same."""


@contextmanager
def imported_meanwhile() -> Iterator[None]:
    """Import in another thread what Ray Train needs, while the block starts Ray's processes."""
    thread = threading.Thread(target=lambda: [import_module(m) for m in _SLOW])
    thread.start()
    try:
        yield
    finally:
        thread.join()


class WorkerManager:
    """What drives a sweep's trials: their processes, and how many of them there may be.

    Attributes:
        mailbox: where trials are heard and answered.
        deaf: whether it is gone, so that the trials need another and processes that know it.
    """

    def __init__(
        self, run: SweepController, crew: WorkerPool, broker: Any, capacity: Capacity
    ) -> None:
        self.broker, self.broker_lost = broker, False
        self._run, self._crew, self._capacity = run, crew, capacity
        self._sizes: dict[str, int] = {}

    def allocation(self, blamed: Collection[Machine] = ()) -> Allocation | None:
        """What one more trial would get now; None while there is no room for it.

        Args:
            blamed: machines that it should keep off; those that have left do not count. Where the
                others could never hold it, it gets one of these.
        """
        if self.broker_lost:
            return None
        size = self._capacity.next_trial_workers(self._sizes.values())
        if size is None:
            return None
        allocation = self._capacity.placement.allocation
        there = self._capacity.present_machines(blamed)
        if not there:
            return allocation(size)
        others = self._capacity.slots_excluding({m.id for m in there})
        fewest = self._run.spec.resources.min_workers
        if others < fewest:
            return replace(allocation(size), kept_off=there, in_place=True)
        size = min(size, others - self._running_off({m.id for m in there}))
        return None if size < fewest else replace(allocation(size), kept_off=there)

    def _running_off(self, machines: Collection[str]) -> int:
        """Workers that run on other machines, or of which it is not known where."""
        known = self._crew.machines()
        return sum(
            size - sum(m in machines for m in known.get(key, ()))
            for key, size in self._sizes.items()
        )

    def start(self, job: TrialJob) -> None:
        """Begin an attempt."""
        self._capacity.mark_activity()
        self._sizes[job.key] = job.workers
        self._crew.start(job)

    def release(self, job: TrialJob, *, unusable: bool) -> None:
        """An attempt is over; see `WorkerPool.release`."""
        self._crew.release(job.key, unusable=unusable)
        del self._sizes[job.key]
        self._capacity.mark_activity()
        self._capacity.refresh_soon()

    def answer(self, job: TrialJob) -> Answer:
        """What a trial that may go on is told: PAUSE where it is to go on with more workers."""
        if not self._capacity.should_grow(job.workers, self._waiting):
            return Answer.CONTINUE
        self._run.queue.request_move(job.trial_id)
        return Answer.PAUSE

    def _waiting(self) -> int:
        """Workers that are up and have no trial."""
        return max(0, self._crew.workers_up() - sum(self._sizes.values()))

    def on_start_failed(self, job: TrialJob, error: str) -> None:
        """An attempt got no processes. Where others have theirs, it waits for one of these; one
        that may have fewer workers is tried with fewer.
        """
        if not self._crew.is_alive():
            self.broker_lost = True
            self._run.on_failed(job.trial_id, error, began=False)
            return
        fewer = job.workers - 1 if job.workers > self._run.spec.resources.min_workers else 0
        if there := self._crew.workers_up() + fewer:
            self._capacity.cap_workers(there)
            self._run.on_failed(job.trial_id, error, began=False)
        else:
            self._run.give_up(f"no trial can start: {error}")

    def on_listener_died(self, job: TrialJob, *, for_memory: bool = False) -> Remedy | None:
        """Ray Tune's process for an attempt died: alone, or because the mailbox did.

        Args:
            job: the attempt.
            for_memory: Ray's memory monitor killed it. It begins with the youngest processes of the
                machine; where it came to the attempt's own too, these say what happened.

        Returns:
            What it was taken for; None when the attempt is not charged with it.
        """
        self.broker_lost = self.broker_lost or not self._crew.is_alive()
        ask = for_memory and not self.broker_lost
        reason = self._crew.failure_reason(job.key, _NOTICED_S) if ask else None
        return self._run.on_failed(
            job.trial_id, reason or LISTENER_DIED, began=not self.broker_lost
        )

    def poll(self) -> None:
        """Let go of processes that no trial needs any more, and of attempts that wait for room
        that is gone; called all the time.
        """
        running = self._sizes.values()
        most = 0 if self._capacity.is_idle else self._capacity.max_concurrent_trials()
        self._crew.retire_idle(max(0, most - len(running)))
        if self._capacity.is_overcommitted(running):
            self._crew.cancel_starts()
        self._capacity.track_free_slots(running)
        self._note_leaks()

    def close(self) -> None:
        """End all processes; bounded in time."""
        self._crew.close()
        self._note_leaks()

    def _note_leaks(self) -> None:
        for leak in self._crew.take_leaks():
            self._run.lifecycle.record_leak(leak.key, leak.message)


@contextmanager
def start_workers(run: SweepController, placement: Placement) -> Iterator[WorkerManager]:
    """Processes for a sweep's trials, which come up in the background. Ray must be up."""
    from trainables.launch.broker import start_broker
    from trainables.launch.ray_train import WorkerGroupSpec
    from trainables.launch.worker_pool import Isolation, launch
    from tuning.controller.resources.cluster import available_nodes, cluster_nodes

    broker, resources = start_broker(), run.spec.resources
    spec = WorkerGroupSpec(
        placement.workers_per_trial[0],
        resources.cpus_per_worker,
        placement.gpus_per_worker,
        run.spec.failure.start_timeout,
        str(run.paths.ray / "train"),
    )
    isolation = Isolation(
        resources.isolation, resources.max_trials_per_lane, resources.max_lane_growth * 2**20
    )
    crew = launch(run.spec.trainable, isolation, spec, placement.workers_per_trial, broker)
    workers = WorkerManager(run, crew, broker, Capacity(placement, cluster_nodes, available_nodes))
    try:
        yield workers
    finally:
        workers.close()


def run_trials(run: SweepController, placement: Placement, between: Callable[[], None]) -> None:
    """Run a sweep's trials; when the mailbox dies, with new processes from their checkpoints.

    Args:
        run: the sweep.
        placement: of its trials.
        between: called again and again, between the trials' events.
    """
    for _ in range(_MAILBOXES):
        with start_workers(run, placement) as workers:
            from tuning.controller.ray_tune.driver import drive  # while the workers come up

            drive(run, workers, between)
        if not workers.broker_lost:
            return
    run.give_up(f"the mailbox of the trials died {_MAILBOXES} times")
