"""Sweeps whose trials train, in this process and without Ray."""

from __future__ import annotations

from dataclasses import dataclass

from results.records.trial import Report
from tests.threads import one_thread
from trainables.job import Answer
from trainables.launch.run_trial import run_local
from tuning.controller.sweep import SweepController
from tuning.search.schedulers import Decision

_ANSWERS = {Decision.CONTINUE: Answer.CONTINUE, Decision.PAUSE: Answer.PAUSE}


@dataclass(frozen=True)
class DirectChannel:
    """Passes reports to the sweep, as the driver does."""

    run: SweepController
    trial: str

    def report(self, report: Report) -> Answer:
        return _ANSWERS.get(self.run.on_report(self.trial, report), Answer.STOP)


def train_all(run: SweepController) -> None:
    """Train the remaining trials of a sweep, one after another."""
    while not run.finished:
        job = run.next_trial()
        assert job is not None
        with one_thread():
            run_local(job, DirectChannel(run, job.trial_id))
        run.on_ended(job.trial_id)
