"""The sweep of the benchmarks on this platform: its file, its command and its trials' times."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT
from benchmarks.work import (
    LEARNING_RATE,
    REDUCTION_FACTOR,
    STARTUP_TRIALS,
    TrialTimes,
    Workload,
    X,
)


def command(job: Workload, folder: Path) -> list[str]:
    return run_file(sweep_of(job, folder), folder)


def run_file(sweep: dict[str, Any], folder: Path) -> list[str]:
    """Write a sweep file; returns the command that runs it."""
    file = folder / "sweep.yaml"
    file.write_text(json.dumps(sweep, indent=1))  # YAML 1.2 holds JSON
    return [sys.executable, "-m", "tuning", "run", str(file)]


def sweep_of(job: Workload, folder: Path) -> dict[str, Any]:
    """The sweep file of this platform."""
    return {
        "name": "overhead",
        "trainable": f"{ROOT / 'benchmarks' / 'trivial.py'}:Trivial",
        "metric": "loss",
        "mode": "min",
        "space": {
            "x": {"uniform": X},
            "learning_rate": {"loguniform": LEARNING_RATE},
        },
        "fixed": {"reports": job.reports, "step_s": job.step_s},
        "search": {"name": "tpe", "startup_trials": STARTUP_TRIALS},
        "scheduler": {
            "name": "asha",
            "grace_period": job.grace_period,
            "max_t": job.reports,
            "reduction_factor": REDUCTION_FACTOR,
        },
        "budget": {"trials": job.trials},
        "resources": {
            "workers": job.workers,
            "cpus_per_worker": job.cpus_per_worker,
            "gpus_per_worker": 0,
            "concurrency": job.at_once,
        },
        "storage": str(folder),
        "seed": job.seed,
    }


def loop_command(job: Workload, folder: Path, function: str = "train_fn_per_worker") -> list[str]:
    """A function of `benchmarks/loop.py`."""
    trainable = f"{ROOT / 'benchmarks' / 'loop.py'}:{function}"
    fixed = {"job": job.dumps()}
    return run_file(sweep_of(job, folder) | {"trainable": trainable, "fixed": fixed}, folder)


def times_of_trials(folder: Path) -> list[TrialTimes]:
    from results.paths import Storage
    from results.records.trial import TrialState, read_reports, read_trials

    paths, times = Storage(folder).sweep("overhead"), []
    for record in read_trials(paths):
        ended = record.attempts[-1].ended
        if record.state is TrialState.FAILED or not record.state.finished or ended is None:
            raise SystemExit(f"{record.id} is {record.state.value}: {record.reason}")
        reports = read_reports(paths.trial(record.id), record.end_step)
        made = tuple(r.metrics.get("reported_at", r.time) for r in reports)
        times.append(TrialTimes(made, ended, reports[0].metrics.get("began_at")))
    return times
