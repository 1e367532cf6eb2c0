"""Measures the layouts of a configuration: some steps of each in real processes, without Ray.

    python -m tuning.evaluation.probe JOB

is what each process runs: alone, or as one rank under torchrun.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter

from results.records.trial import Report
from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from search_spaces.spec.layout import LayoutSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.job import Answer, TrialJob
from trainables.registry import resolve
from tuning.controller.resources.layouts import LayoutEstimate
from tuning.controller.trial_jobs import make_job
from tuning.evaluation.ranks import run_ranks

if TYPE_CHECKING:
    from trainables.worker import Worker

_TAIL = 4000
"""Characters at the end of a log that are searched for the error."""


@dataclass(frozen=True)
class Measured:
    """A layout, and what its ranks measured.

    Attributes:
        estimate: of the layout, by arithmetic.
        steps_per_second: of the slowest rank; 0 if the layout does not run.
        peak: bytes of the rank that needs most.
        problem: why it does not run, one line.
    """

    estimate: LayoutEstimate
    steps_per_second: float = 0.0
    peak: int = 0
    problem: str = ""


def measure_layout(
    spec: SweepSpec,
    params: Mapping[str, Any],
    estimate: LayoutEstimate,
    folder: Path,
    cache: Path,
    steps: int,
    timeout_s: float,
) -> Measured:
    """Train some steps on a layout.

    Args:
        spec: of the sweep.
        params: checked, of a configuration.
        estimate: of the layout.
        folder: for files, which exists.
        cache: folder of prepared data.
        steps: at least 8.
        timeout_s: seconds after which the processes are killed.
    """
    ranks, layout = estimate.ranks, estimate.layout
    root = folder / layout.as_written().strip("{}").replace(": ", "").replace(", ", "_")
    root.mkdir()
    config = resolve(spec.trainable).Config.for_probe(spec.nest(params), steps)
    own = {"workers": ranks, "layout": LayoutSpec.of(layout), "hang_timeout_s": None}
    job = make_job(spec, root, config, spec.seed, str(cache), trial_id="probe", **own)
    order, log = root / "order.json", root / "log"
    write_atomic(order, TypeAdapter(tuple[TrialJob, int]).dump_json((job, steps)))
    cpus = spec.resources.cpus_per_worker
    code = run_ranks("tuning.evaluation.probe", order, ranks, cpus, log, timeout_s)
    if code is None:
        return Measured(estimate, problem=f"not done within {timeout_s:g} s; log {log}")
    if code:
        return Measured(estimate, problem=f"{_last_error(log)}; log {log}")
    files = [probed_file(root, rank) for rank in range(ranks)]
    measured = [TypeAdapter(Probed).validate_json(file.read_bytes()) for file in files]
    slowest = min(one.steps_per_second for one in measured)
    return Measured(estimate, slowest, max(one.peak for one in measured))


def _last_error(log: Path) -> str:
    """The last line of a log that is an exception's."""
    lines = log.read_text(errors="replace")[-_TAIL:].splitlines()
    errors = [line.strip() for line in lines if "Error: " in line and "ChildFailed" not in line]
    return errors[-1].partition("]: ")[2] or errors[-1] if errors else "its processes failed"


_UNCOUNTED = 4
"""The part of the steps at the start, one in so many, whose time does not count."""


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
        changed, memory = cast(Any, worker), _PeakMemory(worker)

        def step() -> None:
            beat()
            self._end_step(memory)

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

    def _end_step(self, memory: _PeakMemory) -> None:
        done = len(self.times) + 1
        if done == 1:
            from trainables.runtime.leftovers import KEPT

            KEPT.keep(None, None)  # a model for later trials, which there are not
            memory.forget()
        elif done == 2:
            self.peak = memory.stop()
        if done in (1 + self.count // _UNCOUNTED, self.count):
            memory.wait()
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


class _PeakMemory:
    """The peak of a worker's tensors, as the allocator of a GPU counts them.

    On a CPU, of all that are made while it counts, which takes time.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker, self._counting = worker, ExitStack()

    @property
    def _gpu(self) -> Any:
        """What torch knows of the worker's GPU; None on a CPU."""
        import torch

        return torch.cuda if self._worker.device.type == "cuda" else None

    def start(self) -> None:
        """Begin to count."""
        if self._gpu is None:
            from torch import nn

            from trainables.parallel.meter import Meter

            self._meter = Meter(nn.Module(), self._worker.mesh)
            self._counting.enter_context(self._meter.counting())

    def forget(self) -> None:
        """Forget the peak so far, not what lives."""
        if self._gpu is None:
            self._meter.restart()
        else:
            self._gpu.reset_peak_memory_stats(self._worker.device)

    def stop(self) -> int:
        """The peak in bytes."""
        self._counting.close()
        if self._gpu is None:
            return self._meter.peak
        peak: int = self._gpu.max_memory_allocated(self._worker.device)
        return peak

    def wait(self) -> None:
        """Until the GPU has computed what it was given."""
        if self._gpu is not None:
            self._gpu.synchronize(self._worker.device)


class _NoDriver:
    """A channel that lets a trial go on."""

    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def main() -> None:
    """Train the job of the file that the command line names, which says how many steps."""
    from trainables.launch.run_trial import run_local

    job, count = TypeAdapter(tuple[TrialJob, int]).validate_json(Path(sys.argv[1]).read_bytes())
    steps = Steps(count)
    with suppress(Finished):
        run_local(job, _NoDriver(), steps.watch)
    file = probed_file(Path(job.folder), int(os.environ.get("RANK", "0")))
    found = Probed(steps.per_second, steps.peak)
    write_atomic(file, TypeAdapter(Probed).dump_json(found))


if __name__ == "__main__":
    main()
