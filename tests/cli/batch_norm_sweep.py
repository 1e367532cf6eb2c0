"""Sweeps whose trials were really trained, in this process and without Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from results.paths import SweepPaths
from results.records import Report
from search_spaces.load import LoadedSweep, Source
from tests.tuning.simulate import make_spec, open_run
from trainables.run import run_trial
from trainables.worker import Answer
from tuning.execution.folder import create
from tuning.execution.sweep import SweepRun
from tuning.search.schedulers import Decision

DIGITS: dict[str, Any] = {
    "name": "trained",
    "trainable": "digits",
    "metric": "accuracy",
    "mode": "max",
    "space": {"learning_rate": {"loguniform": [3e-3, 3e-2]}},
    "fixed": {"hidden_units": 16, "num_layers": 1, "epochs": 4, "batch_norm": True},
    "scheduler": {"name": "none", "max_t": 4},
    "budget": {"trials": 3},
    "checkpoint": {"every": 1, "keep": 3},
    "tracking": {"name": "none"},
}


@dataclass(frozen=True)
class _Books:
    """Rank 0 talks to the sweep's books directly."""

    run: SweepRun
    trial_id: str

    def report(self, report: Report) -> Answer:
        going_on = self.run.on_report(self.trial_id, report) is Decision.CONTINUE
        return Answer.CONTINUE if going_on else Answer.STOP


def trained(**changes: Any) -> SweepPaths:
    """A sweep in ./sweeps, trained to its end."""
    spec = make_spec(**{**DIGITS, **changes})
    paths = create(LoadedSweep(spec, Source("s.yaml"), Path("s.yaml"), ()), None, None)
    run = open_run(paths.root, spec)
    while not run.finished:
        job = run.next_trial()
        assert job is not None
        run_trial(job, _Books(run, job.trial_id), torch.device("cpu"))
        run.on_ended(job.trial_id)
    return paths
