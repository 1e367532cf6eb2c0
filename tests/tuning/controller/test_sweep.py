"""A sweep without Ray: proposals, outcomes, retries, and resume after a killed driver."""

import math

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from results.records.failures import Remedy
from results.records.trial import Report, TrialState, read_trials
from tests.reports import append_report
from tests.tuning.simulate import (
    STEPS,
    finish,
    make_spec,
    open_run,
    outcome,
    run_sweep,
    run_trials,
    train,
)
from tuning.search.schedulers import Decision
from tuning.search.study.study import SweepStudy


def test_sweep_runs_to_its_budget(tmp_path):
    run = run_sweep(tmp_path / "s")
    states = [r.state for r in run.records.values()]
    assert len(states) == 6
    assert set(states) <= {TrialState.COMPLETED, TrialState.STOPPED}
    assert TrialState.COMPLETED in states
    outcomes = [t.state for t in run.study.trials]
    assert outcomes == [
        {TrialState.COMPLETED: OptunaState.COMPLETE, TrialState.STOPPED: OptunaState.PRUNED}[s]
        for s in states
    ]


def test_same_seed_gives_the_same_sweep(tmp_path, uninterrupted):
    assert outcome(run_sweep(tmp_path / "same")) == outcome(uninterrupted)
    assert outcome(run_sweep(tmp_path / "other", make_spec(seed=4))) != outcome(uninterrupted)


@pytest.mark.parametrize("killed_after", range(6))
@pytest.mark.parametrize("at_step", [0, 2, 5])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, uninterrupted, killed_after, at_step):
    """The driver dies within a trial: only the folder remains."""
    killed = run_trials(tmp_path / "killed", count=killed_after)
    train(killed, killed.next_trial(), upto=at_step)
    finished = {r.id for r in read_trials(killed.paths) if r.state.finished}
    del killed

    resumed = open_run(tmp_path / "killed")
    again = []
    while (job := resumed.next_trial()) is not None:
        again.append(job.trial_id)
        train(resumed, job)
    assert not finished & set(again)
    assert outcome(resumed) == outcome(uninterrupted)


def test_resume_without_the_study_rebuilds_it(tmp_path, uninterrupted):
    run = run_trials(tmp_path / "s", count=3)
    train(run, run.next_trial(), upto=1)
    run.paths.study.unlink()
    resumed = run_sweep(tmp_path / "s")
    assert outcome(resumed) == outcome(uninterrupted)
    assert len(resumed.study.trials) == 6


def test_torn_journal_line_is_dropped(tmp_path):
    run = run_trials(tmp_path / "s", count=3)
    with open(run.paths.study, "ab") as f:
        f.write(b'{"op_code": 4, "worker_')
    resumed = run_sweep(tmp_path / "s")
    assert len(read_trials(resumed.paths)) == 6


def test_proposal_without_a_record_is_resumed(tmp_path):
    spec = make_spec()
    run = open_run(tmp_path / "s", spec)
    number, params = run.study.ask()
    resumed = open_run(tmp_path / "s", spec)
    job = resumed.next_trial()
    assert job.trial_id == f"t{number:04d}"
    assert resumed.records[job.trial_id].params == params
    finish_one = train(resumed, job)
    assert finish_one in (Decision.COMPLETE, Decision.STOP)
    finish(resumed)
    assert len(resumed.records) == 6


def test_crash_is_retried_until_retries_are_spent(tmp_path):
    run = open_run(tmp_path / "s", make_spec(failure={"max_retries": 1}))
    job = run.next_trial()
    train(run, job, upto=2)
    run.on_failed(job.trial_id, "rank 1: RuntimeError: boom")
    again = run.next_trial()
    assert (again.trial_id, again.attempt) == (job.trial_id, 2)
    assert again.config == job.config
    run.on_failed(job.trial_id, "rank 1: RuntimeError: boom")
    record = run.records[job.trial_id]
    assert record.state is TrialState.FAILED
    assert record.reason == "rank 1: RuntimeError: boom (the same error 2 times)"
    assert [a.error for a in record.attempts] == ["rank 1: RuntimeError: boom"] * 2
    assert run.study.trials[0].state is OptunaState.FAIL
    assert run.next_trial().trial_id != job.trial_id


def test_interruption_is_not_a_failure(tmp_path):
    run = open_run(tmp_path / "s", make_spec(failure={"max_retries": 0}))
    job = run.next_trial()
    train(run, job, upto=2)
    run.interrupt()
    assert run.next_trial() is None
    run.lifecycle.release()
    assert run.records[job.trial_id].state is TrialState.PENDING
    resumed = open_run(tmp_path / "s", make_spec(failure={"max_retries": 0}))
    again = resumed.next_trial()
    assert again.attempt == 2
    train(resumed, again)
    finish(resumed)
    assert TrialState.FAILED not in {r.state for r in resumed.records.values()}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_metric_that_is_not_finite_fails_the_trial(run, bad):
    job = run.next_trial()
    assert train(run, job, value=lambda c, s: bad if s == 3 else 1.0) is Decision.STOP
    record = run.records[job.trial_id]
    assert (record.state, record.end_step) == (TrialState.FAILED, 3)
    assert record.reason == f"diverged: loss is {bad}"
    assert record.attempts[0].remedy is Remedy.DIVERGED
    proposal = run.study.trials[0]
    assert (proposal.state, proposal.intermediate_values) == (OptunaState.PRUNED, {})
    finish(run)
    assert len(run.records) == 6


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clock_that_is_not_finite_fails_the_trial(tmp_path, bad):
    spec = make_spec(scheduler={"name": "asha", "max_t": STEPS, "time_attr": "epoch"})
    run = open_run(tmp_path, spec)
    job = run.next_trial()
    report = Report(step=1, metrics={"loss": 0.5, "epoch": bad}, attempt=1, time=1.0)
    append_report(job.paths, report)  # a driver that is killed here decides it again
    assert open_run(tmp_path, spec).records[job.trial_id].state is TrialState.PENDING
    assert run.on_report(job.trial_id, report) is Decision.STOP
    assert run.records[job.trial_id].reason.endswith(f"epoch is {bad}")


def test_trials_of_lists_have_a_scheduler_for_each(tmp_path):
    space = {**make_spec().model_dump(mode="json")["space"], "sizes": {"choice": [[1], [2, 3]]}}
    spec = make_spec(space=space, scheduler={"name": "asha", "max_t": STEPS, "per": ["sizes"]})
    assert len(run_sweep(tmp_path, spec).records) == 6


def test_missing_metric_fails_the_trial_at_its_first_report(tmp_path):
    run = open_run(tmp_path / "s", make_spec(metric="los"))
    for _ in range(3):
        assert not run.gave_up
        job = run.next_trial()
        assert train(run, job) is Decision.STOP
        assert run.table.reported_metrics(job.trial_id) == {"loss", "size"}
    record = run.records[job.trial_id]
    assert (record.state, record.end_step) == (TrialState.FAILED, 1)
    assert record.reason == "its first report lacks los (did you mean 'loss'?)"
    assert run.problem == (
        f"t0000, t0001 and t0002 failed in the same way, and no trial has a value: {record.reason}"
    )
    assert run.next_trial() is None


def test_trial_that_never_reports_the_metric_fails_at_its_end(tmp_path):
    spec = make_spec(metric="los", failure={"stop_after_same": None})
    run = open_run(tmp_path / "s", spec)
    job = run.next_trial()
    assert train(run, job) is Decision.CONTINUE
    run.on_ended(job.trial_id)
    record = run.records[job.trial_id]
    assert record.state is TrialState.FAILED
    assert record.reason == "never reported los (did you mean 'loss'?)"


def test_late_reports_change_nothing(run):
    job = run.next_trial()
    train(run, job)
    before = outcome(run)
    assert train(run, job, upto=STEPS + 2) is Decision.STOP
    run.on_ended(job.trial_id)
    run.on_failed(job.trial_id, "too late")
    assert outcome(run) == before


def test_grid_tries_every_value(tmp_path):
    space = {"x": {"uniform": [-1.0, 1.0]}, "opt": {"k": {"grid_search": [1, 2, 3]}}}
    run = run_sweep(tmp_path / "s", make_spec(space=space))
    tried = [r.params["opt.k"] for r in sorted(run.records.values(), key=lambda r: r.number)]
    assert tried == [1, 2, 3, 1, 2, 3]


def test_time_budget_counts_earlier_sessions(tmp_path):
    spec = make_spec(budget={"time": 100.0})
    run = open_run(tmp_path / "s", spec)
    job = run.next_trial()
    late = open_run(tmp_path / "s", spec, spent_s=100.0)
    assert late.next_trial() is None
    assert job is not None


def test_study_is_readable_by_optuna(tmp_path):
    run = run_sweep(tmp_path / "s")
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(run.paths.study))
    )
    study = optuna.load_study(study_name="simulated", storage=storage)
    assert len(study.trials) == 6
    assert study.best_trial.params["opt.k"] in (1, 2)


def test_outcome_told_twice_counts_once(run):
    train(run, run.next_trial())
    record = run.records["t0000"]
    study = SweepStudy(run.paths.study, "simulated", run.spec)
    study.tell(record, run.table.curve("t0000"))
    assert len(study.trials) == 1


def test_failure_before_the_trial_began_does_not_count(tmp_path):
    run = open_run(tmp_path / "s", make_spec(failure={"max_retries": 0}))
    job = run.next_trial()
    run.on_failed(job.trial_id, "the lane went", began=False)
    again = run.next_trial()
    assert (again.trial_id, again.attempt) == (job.trial_id, 2)
    assert run.records[job.trial_id].attempts[0].error is None
