"""Starts the workers of a rehearsal as those of a sweep, and collects what they measure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from search_spaces.redaction import redact

if TYPE_CHECKING:
    from trainables.launch.ray_train import WorkerGroupSpec
    from tuning.doctor.settings import Measured, RehearsalTask

_POLL_S, STALL_S = 0.5, 300.0
"""Seconds between two looks at the workers; seconds without a new phase after which they hang."""


class Collector:
    """An actor on the head that keeps the newest measurements of each worker."""

    def __init__(self) -> None:
        self._workers: dict[int, Measured] = {}

    def post(self, rank: int, measured: Measured) -> None:
        """Take everything that a worker has measured so far."""
        self._workers[rank] = measured

    def read(self) -> dict[int, Measured]:
        """The measurements of the workers that have begun, by rank."""
        return self._workers


@dataclass
class Rehearsal:
    """Everything that was measured.

    Attributes:
        expected: number of workers.
        head: seconds of each phase of the head, and sizes.
        workers: measurements of each worker that began, by rank.
        problems: what failed on the head, by its phase.
        failure: why the workers ended early.
    """

    expected: int
    head: dict[str, float] = field(default_factory=dict)
    workers: list[Measured] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    failure: str | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Take the time of a phase; what a user can repair is a problem, not an exception."""
        with self.timed(name):
            try:
                yield
            except (UserError, OSError) as e:
                self.problems[name] = redact(str(e).partition("\n")[0])

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Take the time of a phase."""
        begun = time.monotonic()
        yield
        self.head[f"{name}_time"] = time.monotonic() - begun


def run_workers(
    task: RehearsalTask,
    group: WorkerGroupSpec,
    found: Rehearsal,
    tell: Callable[[str], None],
    stall_s: float = STALL_S,
) -> None:
    """Run all phases in a group of workers.

    Args:
        found: gets their measurements, the time until all are up, and why they ended early.
        tell: called with a line about the progress, again and again.
        stall_s: seconds without a new phase of any worker, beyond the simulated training, after
            which the workers are given up.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    collector: Any = ray.remote(Collector).options(num_cpus=0, scheduling_strategy=here).remote()
    thread = threading.Thread(target=_fit, args=(task, collector, group, found), daemon=True)
    begun = changed = time.monotonic()
    seen: dict[int, str] = {}
    thread.start()
    alive = True
    while alive:
        thread.join(_POLL_S)
        alive = thread.is_alive()
        workers = ray.get(collector.read.remote(), timeout=group.start_timeout_s)
        found.workers = [workers[rank] for rank in sorted(workers)]
        at = {rank: measured["at"] for rank, measured in workers.items()}
        if at != seen:
            seen, changed = at, time.monotonic()
            tell(_progress(at, group.workers))
        if "launch_time" not in found.head and len(at) == group.workers:
            found.head["launch_time"] = time.monotonic() - begun
        limit = stall_s + (task.settings.seconds if at else group.start_timeout_s)
        if alive and time.monotonic() - changed > limit:
            found.failure = f"no worker began another phase for {limit:g} s"
            return


def _fit(task: RehearsalTask, collector: Any, group: WorkerGroupSpec, found: Rehearsal) -> None:
    from trainables.launch.errors import describe_failure
    from trainables.launch.lanes.trainer import LaneTrainer
    from trainables.launch.ray_train import fit, run_config
    from tuning.doctor.worker import train_loop_per_worker

    config = {"task": task, "collector": collector}
    run = run_config(f"doctor-{time.time_ns()}", group.folder)
    try:
        fit(train_loop_per_worker, config, group, run, trainer=LaneTrainer)
    except Exception as e:  # noqa: BLE001 - it is a finding
        found.failure = describe_failure(e)


def _progress(at: dict[int, str], workers: int) -> str:
    """How many workers are up, and where the slowest are."""
    phases = [phase for phase in at.values() if phase != "done"]
    first = min(phases, key=phases.count) if phases else "done"
    return f"{len(at)} of {workers} workers are up, {at and first}"
