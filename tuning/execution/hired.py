"""The processes of a sweep's trials, from the first to the last; up before Ray Tune is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainables.worker import TrialJob
from tuning.execution.capacity import Capacity
from tuning.execution.placement import Placement
from tuning.execution.sweep import SweepRun

if TYPE_CHECKING:
    from trainables.launch import Crew

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


class Hired:
    """What drives a sweep's trials: their processes, and how many of them there may be.

    Attributes:
        mailbox: where trials are heard and answered.
    """

    def __init__(self, run: SweepRun, crew: Crew, mailbox: Any, capacity: Capacity) -> None:
        self.mailbox = mailbox
        self._run, self._crew, self._capacity = run, crew, capacity

    def room(self, running: int) -> bool:
        """Whether one more trial may run now."""
        return running < self._capacity.trials()

    def start(self, job: TrialJob) -> None:
        """Begin an attempt."""
        self._capacity.used()
        self._crew.start(job)

    def release(self, job: TrialJob, *, ruined: bool) -> None:
        """An attempt is over; see `Crew.release`."""
        self._crew.release(job.key, ruined=ruined)
        self._capacity.used()

    def never_came_up(self, job: TrialJob, error: str) -> None:
        """An attempt got no processes. Where others have theirs, it waits for one of these."""
        if there := self._crew.up():
            self._capacity.no_room_for_more_than(there)
            self._run.on_failed(job.trial_id, error, began=False)
        else:
            self._run.give_up(f"no trial can start: {error}")

    def tend(self, running: int) -> None:
        """Let go of processes that no trial needs any more; called all the time."""
        needed = 0 if self._capacity.idle else self._capacity.trials() - running
        self._crew.keep(max(0, needed))
        self._note_leaks()

    def close(self) -> None:
        """End all processes; bounded in time."""
        self._crew.close()
        self._note_leaks()

    def _note_leaks(self) -> None:
        for leak in self._crew.leaks():
            self._run.on_leak(leak.key, leak.said)


@contextmanager
def hire(run: SweepRun, placement: Placement) -> Iterator[Hired]:
    """Processes for a sweep's trials, which come up in the background. Ray must be up."""
    from trainables.fit import Shape
    from trainables.launch import Isolation, launch
    from trainables.mailbox import open_mailbox
    from tuning.execution.cluster import nodes

    mailbox, resources = open_mailbox(), run.spec.resources
    shape = Shape(
        placement.workers,
        placement.cpus_per_worker,
        placement.gpus_per_worker,
        run.spec.failure.start_timeout,
        str(run.paths.ray / "train"),
    )
    isolation = Isolation(
        resources.isolation, resources.max_trials_per_lane, resources.max_lane_growth * 2**20
    )
    crew = launch(run.spec.trainable, isolation, shape, placement.concurrency, mailbox)
    hired = Hired(run, crew, mailbox, Capacity(resources, placement, nodes))
    try:
        yield hired
    finally:
        hired.close()
