"""The lower bound: the same search as a plain loop around Optuna, in one process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import optuna

from benchmarks.work import (
    GRACE_PERIOD,
    LEARNING_RATE,
    REDUCTION_FACTOR,
    STARTUP_TRIALS,
    TrialTimes,
    Workload,
    X,
    loss_at,
    write_times,
)


def run_trial(study: optuna.Study, job: Workload) -> TrialTimes:
    """Run one trial, from proposal to outcome."""
    trial, times = study.ask(), []
    x = trial.suggest_float("x", *X)
    learning_rate = trial.suggest_float("learning_rate", *LEARNING_RATE, log=True)
    for step in range(1, job.reports + 1):
        time.sleep(job.step_s)
        loss = loss_at(x, learning_rate, step)
        times.append(time.time())
        trial.report(loss, step)
        if step < job.reports and trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            break
    else:
        study.tell(trial, loss)
    return TrialTimes(tuple(times), time.time())


def main() -> None:
    """Arguments: the job, and the file to write the trials' times to."""
    job, out = Workload.loads(sys.argv[1]), Path(sys.argv[2])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=job.seed, n_startup_trials=STARTUP_TRIALS),
        pruner=optuna.pruners.SuccessiveHalvingPruner(GRACE_PERIOD, REDUCTION_FACTOR),
    )
    write_times(out, [run_trial(study, job) for _ in range(job.trials)])


if __name__ == "__main__":
    main()
