"""Measures the layouts of a configuration: some steps of each in real processes, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from results.storage.atomic import write_atomic
from search_spaces.spec.layout import LayoutSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.job import TrialJob
from trainables.launch.probe import Probed, probed_file
from trainables.registry import resolve
from tuning.controller.resources.layouts import LayoutEstimate
from tuning.controller.trial_jobs import make_job
from tuning.evaluation.ranks import run_ranks

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
    job = make_job(
        spec,
        trial_id="probe",
        folder=root,
        config=config,
        seed=spec.seed,
        attempt=1,
        cache=str(cache),
    )
    job = replace(job, workers=ranks, layout=LayoutSpec.of(layout), hang_timeout_s=None)
    order, log = root / "order.json", root / "log"
    write_atomic(order, TypeAdapter(tuple[TrialJob, int]).dump_json((job, steps)))
    cpus = spec.resources.cpus_per_worker
    code = run_ranks("trainables.launch.probe", order, ranks, cpus, log, timeout_s)
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
