"""A small sweep of digits that really trains, in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from results.paths import SweepPaths
from results.records import Report
from tests.cli.conftest import Tune
from tests.tuning.simulate import make_spec, open_run
from trainables.local import run_local
from trainables.worker import Answer
from tuning.execution.sweep import SweepRun
from tuning.search.schedulers import Decision

DIGITS = {
    "metric": "accuracy",
    "mode": "max",
    "space": {"learning_rate": {"choice": [0.0001, 0.003, 0.01]}},
    "fixed": {"epochs": 4, "hidden_units": 8, "num_layers": 1},
    "scheduler": {"name": "none", "max_t": 2, "time_attr": "step"},
    "budget": {"trials": 3},
    "search": {"name": "random"},
    "resources": {"workers": 2},
}


@dataclass(frozen=True)
class Books:
    """Passes reports to the books, as the driver does."""

    run: SweepRun
    trial: str

    def report(self, report: Report) -> Answer:
        going_on = self.run.on_report(self.trial, report) is Decision.CONTINUE
        return Answer.CONTINUE if going_on else Answer.STOP


def trained(tune: Tune, trials: int = 3) -> SweepPaths:
    changes: dict[str, Any] = {**DIGITS, "budget": {"trials": trials}}
    paths = tune.sweep("mine", done=False, **changes)
    run = open_run(paths.root, make_spec(name="mine", **changes))
    while not run.finished:
        job = run.next_trial()
        assert job is not None
        run_local(job, Books(run, job.trial_id))
    return paths
