"""`python -m trainables.launch.probe ORDER`: some steps of a trial, with their time and memory.

A program of its own, for fresh processes: alone, or as one rank under torchrun.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from results.records.trial import Report
from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from trainables.job import Answer, TrialJob

if TYPE_CHECKING:
    from trainables.worker import Worker

_UNCOUNTED = 4
"""The part of the steps at the start, one in so many, whose time does not count."""


@dataclass(frozen=True)
class ProbeOrder:
    """A trial, and the number of its steps, of which the training code tells by heartbeats."""

    job: TrialJob
    steps: int


@dataclass(frozen=True)
class Probed:
    """What one rank measured.

    Attributes:
        steps_per_second: without the first steps.
        peak: most bytes of its tensors at a time, in one step.
    """

    steps_per_second: float
    peak: int


def probed_file(folder: Path, rank: int) -> Path:
    """The measurement of a rank, in the folder of the trial."""
    return folder / f"probed_{rank}.json"


class Finished(Exception):
    """The steps are done."""


@dataclass
class Steps:
    """Watches a worker from its `resume` on, and ends the training after some steps.

    Memory is that of the second step, when the optimizer has its state; time that of later ones.

    Attributes:
        count: of the steps.
        times: seconds at the end of each.
        peak: see `Probed`.
    """

    count: int
    times: list[float] = field(default_factory=list)
    peak: int = 0

    def watch(self, worker: Worker) -> None:
        """Count the heartbeats of a worker outside of its reports."""
        resume, report, beat = worker.resume, worker.report, worker.heartbeat
        changed, memory = cast(Any, worker), _memory_of(worker)

        def step() -> None:
            beat()
            self._end_step(worker, memory)

        def resumed() -> Any:
            found = resume()
            memory.start()
            changed.heartbeat = step
            return found

        def reported(**given: Any) -> Answer:
            changed.heartbeat = beat
            try:
                return report(**given)
            finally:
                changed.heartbeat = step

        changed.resume, changed.report = resumed, reported

    def _end_step(self, worker: Worker, memory: _DeviceMemory) -> None:
        done = len(self.times) + 1
        if done == 1:
            memory.forget()
        elif done == 2:
            self.peak = memory.stop()
        if done in (1 + self.count // _UNCOUNTED, self.count):
            _synchronise(worker)
        self.times.append(time.perf_counter())
        if done == self.count:
            raise Finished

    @property
    def per_second(self) -> float:
        """Without the first steps, which allocate memory, load kernels, and are metered.

        Raises:
            UserError: there were too few.
        """
        counted = self.times[self.count // _UNCOUNTED :]
        if len(counted) < 2:
            raise UserError(
                f"the training code called worker.heartbeat() {len(self.times)} times, and "
                f"{self.count} steps were asked for"
            )
        return (len(counted) - 1) / (counted[-1] - counted[0])


def _synchronise(worker: Worker) -> None:
    if worker.device.type == "cuda":
        import torch

        torch.cuda.synchronize(worker.device)


class _DeviceMemory:
    """The peak of tensors on a GPU, as its allocator counts them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def start(self) -> None:
        """Begin to count."""

    def forget(self) -> None:
        """Forget the peak so far, not what lives."""
        import torch

        torch.cuda.reset_peak_memory_stats(self._worker.device)

    def stop(self) -> int:
        """The peak in bytes."""
        import torch

        return torch.cuda.max_memory_allocated(self._worker.device)


class _HostMemory(_DeviceMemory):
    """The peak of tensors on a CPU: all that are made while it counts, which takes time."""

    def start(self) -> None:
        from torch import nn

        from trainables.parallel.meter import Meter

        self._meter, self._counting = Meter(nn.Module(), self._worker.mesh), ExitStack()
        self._counting.enter_context(self._meter.counting())

    def forget(self) -> None:
        self._meter.restart()

    def stop(self) -> int:
        self._counting.close()
        return self._meter.peak


def _memory_of(worker: Worker) -> _DeviceMemory:
    return _DeviceMemory(worker) if worker.device.type == "cuda" else _HostMemory(worker)


class _NoDriver:
    """A channel that lets a trial go on."""

    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def main() -> None:
    """Read the order from the file that the command line names, and train."""
    from trainables.launch.run_trial import run_local

    order = TypeAdapter(ProbeOrder).validate_json(Path(sys.argv[1]).read_bytes())
    steps = Steps(order.steps)
    watch: Callable[[Worker], None] = steps.watch
    with suppress(Finished):
        run_local(order.job, _NoDriver(), watch)
    found = Probed(steps.per_second, steps.peak)
    file = probed_file(Path(order.job.folder), int(os.environ.get("RANK", "0")))
    write_atomic(file, TypeAdapter(Probed).dump_json(found))


if __name__ == "__main__":
    main()
