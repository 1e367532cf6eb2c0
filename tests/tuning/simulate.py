"""Sweeps without Ray: trials are functions of their configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from results.records.trial import Report
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.positions import Source
from search_spaces.spec.sweep import SweepSpec
from tests.reports import append_report
from tests.results.written import write_checkpoint
from trainables.job import TrialJob
from tuning.controller.resources.placement import FindAllocation
from tuning.controller.session import restore
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.create import create_sweep
from tuning.search.schedulers import Decision
from tuning.search.study.study import SweepStudy

STEPS = 9


def make_spec(**changes: Any) -> SweepSpec:
    raw = {
        "name": "simulated",
        "trainable": "digits",
        "metric": "loss",
        "space": {"x": {"uniform": [-1.0, 1.0]}, "opt": {"k": {"choice": [1, 2]}}},
        "scheduler": {"name": "asha", "grace_period": 1, "max_t": STEPS},
        "search": {"startup_trials": 3},
        "budget": {"trials": 6},
        "seed": 3,
    }
    return SweepSpec.model_validate({**raw, **changes})


def new_sweep(spec: SweepSpec, storage: Path | None = None) -> SweepPaths:
    """Create the folder of a sweep, as `tune run` does; by default in the storage of its spec."""
    loaded = LoadedSweep(spec, Source("simulated.yaml"), Path("simulated.yaml"), ())
    return create_sweep(loaded, None, str(storage) if storage else None)


def open_run(root: Path, spec: SweepSpec | None = None, **given: Any) -> SweepController:
    """Open a session of a sweep; the default spec is `make_spec()`."""
    spec, paths = spec or make_spec(), SweepPaths(root)
    paths.root.mkdir(parents=True, exist_ok=True)
    study = SweepStudy(paths.study, spec.name, spec)
    run = SweepController(spec, paths, study, **{"cache": str(root / "cache"), **given})
    restore(run)
    return run


def loss(config: dict[str, Any], step: int) -> float:
    return (config["x"] - 0.3) ** 2 + config["opt"]["k"] / step


def train(
    run: SweepController,
    job: TrialJob,
    upto: int = STEPS,
    value: Callable[[dict[str, Any], int], float] = loss,
) -> Decision:
    """Report steps as a trial would, from its last one, until the sweep stops it."""
    for step in range((run.table.last_step(job.trial_id) or 0) + 1, upto + 1):
        report = Report(
            step=step,
            metrics={"loss": value(job.config, step), "size": abs(job.config.get("x", 0.0))},
            attempt=job.attempt,
            time=time.time(),
        )
        append_report(job.paths, report)
        if step in job.rungs:
            save(job, step)
        decision = run.on_report(job.trial_id, report)
        if decision is not Decision.CONTINUE:
            return decision
    return Decision.CONTINUE


def save(job: TrialJob, step: int) -> None:
    """Commit a checkpoint that names its trial and step."""
    write_checkpoint(job.paths, step, {"weights.txt": f"{job.trial_id} at {step}"}, job.attempt)


def finish(run: SweepController) -> None:
    """Run all trials, one after another."""
    while not run.finished:
        job = next_job(run)
        if train(run, job) is Decision.CONTINUE:
            run.on_ended(job.trial_id)
    run.lifecycle.release()


def run_sweep(root: Path, spec: SweepSpec | None = None) -> SweepController:
    """Open a session of a sweep, and run it to its end."""
    run = open_run(root, spec)
    finish(run)
    return run


def run_trials(root: Path, spec: SweepSpec | None = None, *, count: int) -> SweepController:
    """Open a session of a sweep, and run some trials, one after the other."""
    run = open_run(root, spec)
    for _ in range(count):
        train(run, next_job(run))
    return run


def next_job(run: SweepController, find: FindAllocation | None = None) -> TrialJob:
    """Begin the next attempt, which there must be."""
    job = run.next_trial(find)
    assert job is not None
    return job


def outcome(run: SweepController) -> list[tuple[Any, ...]]:
    return [
        (r.id, r.params, r.seed, r.state, r.reason, r.end_step)
        for r in sorted(run.records.values(), key=lambda r: r.number)
    ]
