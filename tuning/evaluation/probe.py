"""Measures the layouts of a configuration: some steps of each in real processes, without Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from results.storage.atomic import write_atomic
from search_spaces.spec.layout import LayoutSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from trainables.launch.probe import Probed, ProbeOrder, probed_file
from trainables.registry import resolve
from tuning.controller.resources.layouts import Sized
from tuning.controller.trial_jobs import make_job
from tuning.evaluation.ranks import run_ranks

_TAIL = 4000
"""Characters at the end of a log that are searched for the error."""


@dataclass(frozen=True)
class Measured:
    """A layout, and what its ranks measured.

    Attributes:
        sized: the layout, with the memory by arithmetic.
        steps_per_second: of the slowest rank; 0 if the layout does not run.
        peak: bytes of the rank that needs most.
        problem: why it does not run, one line.
    """

    sized: Sized
    steps_per_second: float = 0.0
    peak: int = 0
    problem: str = ""


def measure_layout(
    spec: SweepSpec,
    params: Mapping[str, Any],
    sized: Sized,
    folder: Path,
    cache: Path,
    steps: int,
    timeout_s: float,
) -> Measured:
    """Train some steps on a layout.

    Args:
        spec: of the sweep.
        params: checked, of a configuration.
        sized: the layout.
        folder: for files, which exists.
        cache: folder of prepared data.
        steps: at least 8.
        timeout_s: seconds after which the processes are killed.
    """
    root = folder / sized.layout.as_written().strip("{}").replace(": ", "").replace(", ", "_")
    root.mkdir()
    order, log = root / "order.json", root / "log"
    job = _job(spec, params, sized, root, cache, steps)
    write_atomic(order, TypeAdapter(ProbeOrder).dump_json(ProbeOrder(job, steps)))
    cpus = spec.resources.cpus_per_worker
    code = run_ranks("trainables.launch.probe", order, sized.ranks, cpus, log, timeout_s)
    if code is None:
        return Measured(sized, problem=f"not done within {timeout_s:g} s; log {log}")
    if code:
        return Measured(sized, problem=f"{_last_error(log)}; log {log}")
    files = [probed_file(root, rank) for rank in range(sized.ranks)]
    found = [TypeAdapter(Probed).validate_json(file.read_bytes()) for file in files]
    slowest = min(one.steps_per_second for one in found)
    return Measured(sized, slowest, max(one.peak for one in found))


def _job(
    spec: SweepSpec, params: Mapping[str, Any], sized: Sized, root: Path, cache: Path, steps: int
) -> TrialJob:
    config = resolve(spec.trainable).Config.for_probe(spec.nest(params), steps)
    job = make_job(
        spec,
        trial_id="probe",
        folder=root,
        config=config,
        seed=spec.seed,
        attempt=1,
        cache=str(cache),
    )
    layout = LayoutSpec.of(sized.layout)
    return replace(job, workers=sized.ranks, layout=layout, hang_timeout_s=None)


def _last_error(log: Path) -> str:
    """The last line of a log that is an exception's."""
    lines = log.read_text(errors="replace")[-_TAIL:].splitlines()
    errors = [line.strip() for line in lines if "Error: " in line and "ChildFailed" not in line]
    return errors[-1].partition("]: ")[2] or errors[-1] if errors else "its processes failed"


def fastest(measured: Sequence[Measured]) -> Measured | None:
    """The one with most steps per second; None if none ran."""
    ran = [one for one in measured if not one.problem]
    return max(ran, key=lambda one: one.steps_per_second, default=None)
