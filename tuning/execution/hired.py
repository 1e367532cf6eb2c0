"""The processes of a sweep's trials, from the first to the last; up before Ray Tune is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class Hired:
    """What drives trials: their processes, where these are heard, and how many there may be."""

    crew: Crew
    mailbox: Any
    capacity: Capacity


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
    try:
        yield Hired(crew, mailbox, Capacity(resources, placement, nodes))
    finally:
        crew.close()
        for leak in crew.leaks():
            run.on_leak(leak.key, leak.said)
