"""The cost of a report does not grow with the trials of a sweep, nor with the reports of a trial.

Calls, files and syncs are counted, and nothing is timed.
"""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from results.analysis.replicates import ReplicateGroups
from results.records.trial import Report, TrialRecord
from search_spaces.spec.scheduler import SchedulerSpec
from tests.reports import append_report
from tests.trainables.local import make_worker
from tests.tuning.call_costs import Cost, costs
from tests.tuning.simulate import make_spec, new_sweep, next_job, open_run, train
from trainables.job import TrialJob
from tuning.cli.live_view import LineView
from tuning.controller.events import SessionStart
from tuning.controller.session import open_sweep
from tuning.controller.sweep import SweepController
from tuning.search.schedulers import Decision, make_scheduler

FEW, MANY = 5, 30


def report_of(job: TrialJob, step: int) -> Report:
    return Report(step=step, metrics={"loss": 1 / step}, attempt=job.attempt, time=time.time())


def run_trials(run: SweepController, count: int) -> None:
    for _ in range(count):
        job = next_job(run)
        if train(run, job, upto=2) is Decision.CONTINUE:
            run.on_ended(job.trial_id)


def cost_of_a_report(run: SweepController, job: TrialJob, step: int) -> Cost:
    report = report_of(job, step)
    append_report(job.paths, report)
    with costs() as cost:
        assert run.on_report(job.trial_id, report) is Decision.CONTINUE
    return cost


LIMITS = [
    {"cpu_hours": 1000.0},
    {"gpu_hours": 1000.0},
    {"target": -1.0},
    {"patience": 1000},
    {"min_improvement": 1e-9},
]


@pytest.fixture(params=[{}, *LIMITS], ids=lambda limit: next(iter(limit), "trials"))
def big(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A sweep with a view and a budget."""
    spec = make_spec(
        budget={"trials": 1000, **request.param},
        search={"name": "random"},
        scheduler={"name": "none", "max_t": 999},
    )
    run = open_run(tmp_path / "sweep", spec)
    with open(tmp_path / "out", "w") as out:
        run.observers.add(view := LineView(Console(file=out)))
        view.session_started(SessionStart(run.paths, spec))
        yield run


def cost_of_finished(run: SweepController) -> Cost:
    assert not run.finished  # computes the bound on the regret, once after each trial
    with costs() as cost:
        assert not run.finished
    return cost


def test_cost_of_reports_and_of_finished_does_not_grow_with_trials(big: SweepController) -> None:
    run_trials(big, FEW)
    few_finished, job = cost_of_finished(big), next_job(big)
    cost_of_a_report(big, job, 1)  # imports
    few = cost_of_a_report(big, job, 2)
    run_trials(big, MANY)
    many = cost_of_a_report(big, job, 3)
    assert (few.opened, few.synced) == (many.opened, many.synced) == (0, 0)
    assert many.calls <= few.calls + 20
    big.on_ended(job.trial_id)
    assert cost_of_finished(big).calls <= few_finished.calls + 20


@pytest.mark.parametrize("scheduler", ["median", "asha"])
def test_decide_cost_does_not_grow_with_trials(scheduler: str) -> None:
    """Outside of rungs."""
    settings = {"name": scheduler, "grace_period": 1, "reduction_factor": 20, "max_t": 99}
    compared = make_scheduler(SchedulerSpec.model_validate(settings))

    def cost_of_deciding(trials: range) -> Cost:
        for trial in trials:
            for step in range(1, 5):
                compared.decide(f"t{trial}", step, (1.0,))
        with costs() as cost:
            assert compared.decide(f"t{trials[-1]}", 5, (1.0,)) is Decision.CONTINUE
        return cost

    few = cost_of_deciding(range(FEW))
    compared.decide("t0", 5, (1.0,))
    assert cost_of_deciding(range(FEW, MANY)).calls <= few.calls + 10


@pytest.mark.parametrize("scheduler", ["asha", "asha_promote", "hyperband"])
def test_cost_at_a_rung_grows_with_the_logarithm_of_trials(scheduler: str) -> None:
    settings = {"name": scheduler, "grace_period": 1, "reduction_factor": 3, "max_t": 99}
    compared = make_scheduler(SchedulerSpec.model_validate(settings))

    def cost_of_a_trial(number: int) -> Cost:
        with costs() as cost:
            compared.decide(f"t{number}", 1, (float(number % 7),))
            compared.next_to_resume(more=True, idle=False)
        return cost

    few = [cost_of_a_trial(number) for number in range(FEW)][-1]
    many = [cost_of_a_trial(number) for number in range(FEW, 20 * MANY)][-1]
    assert many.calls <= few.calls + 40


@pytest.mark.parametrize("big", [{}], indirect=True)
def test_report_cost_does_not_grow_with_reports(big: SweepController) -> None:
    job = next_job(big)
    first = [cost_of_a_report(big, job, step) for step in range(1, 4)][-1]
    last = [cost_of_a_report(big, job, step) for step in range(4, 200)][-1]
    assert last.calls <= first.calls + 20
    assert (last.opened, last.synced) == (0, 0)


def test_next_replicate_cost_does_not_grow_with_trials() -> None:
    replicates = ReplicateGroups(3)

    def cost_of_a_trial(number: int) -> Cost:
        trial = TrialRecord(id="t", number=number, params={}, config={}, seed=0, created=0)
        with costs() as cost:
            for replicate in range(3):
                replicates.add(trial.model_copy(update={"replicate": replicate}))
                due = replicates.next_replicate()
        assert due is None
        return cost

    few = cost_of_a_trial(0)
    for number in range(1, MANY):
        cost_of_a_trial(number)
    assert cost_of_a_trial(MANY).calls == few.calls


@pytest.mark.parametrize("big", [{}, *LIMITS[:-1]], indirect=True)
def test_trial_cost_does_not_grow_with_trials(big: SweepController) -> None:
    """Except for the models that propose and bound the regret: they learn from all trials."""

    def cost_of_a_trial() -> Cost:
        with costs() as cost:
            run_trials(big, 1)
        return cost

    run_trials(big, FEW)
    few = cost_of_a_trial()
    run_trials(big, MANY)
    many = cost_of_a_trial()
    assert (few.opened, few.synced) == (many.opened, many.synced)
    assert many.synced <= 10
    assert many.calls <= few.calls + 100 * MANY, "Optuna and the forecast read each trial"


def test_resume_reads_reports_at_most_three_times(tmp_path: Path) -> None:
    spec = make_spec(tracking={"name": "none"})
    run = open_run(new_sweep(spec, tmp_path).root, spec)
    run_trials(run, FEW)
    train(run, run.next_trial(), upto=1)
    view = LineView(Console(file=StringIO()))
    with costs() as cost, open_sweep(run.paths, spec, [view]) as resumed:
        pass
    files = {str(run.paths.trial(i).reports) for i in resumed.records}
    assert len(files) == FEW + 1
    assert {cost.names[file] for file in files} <= {1, 2, 3}, "to check, to count, to read"
    assert {i: step for i, (step, _) in view.progress.newest_values.items()} == {
        i: resumed.table.last_step(i) for i in resumed.records
    }


def test_report_costs_a_worker_one_file_and_one_sync(tmp_path: Path) -> None:
    worker = make_worker(tmp_path / "t0000")
    worker.report(step=1, metrics={"loss": 1.0})
    every = []
    for step in range(2, 50):
        with costs() as cost:
            worker.report(step=step, metrics={"loss": 1.0})
        every.append((cost.opened, cost.synced))
    worker.close()
    assert set(every) == {(1, 1)}
