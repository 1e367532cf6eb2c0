"""Limits of a budget, what was spent before a resume, and the forecast."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from results.analysis.cost import Cost, attempt_cost, cost_shares, total_cost
from results.paths import SweepPaths
from results.records.failures import Cause
from results.records.trial import Attempt, TrialRecord, TrialState, write_trial
from results.storage.fencing import NullFence
from results.sweep_folder.folder import (
    SweepState,
    record_session_time,
    total_elapsed_s,
    write_state,
)
from search_spaces.errors import UserError
from search_spaces.spec.budget import BudgetSpec, PricesSpec
from search_spaces.spec.resources import ResourcesSpec
from tests.results.written import add_trial
from tests.tuning.simulate import (
    make_spec,
    new_sweep,
    open_run,
    outcome,
    run_sweep,
    run_trials,
    train,
)
from tuning.controller.resources.budget import BudgetTracker, check_gpu_budget
from tuning.controller.resources.forecast import (
    Forecast,
    TrialCost,
    earlier_trial_cost,
    forecast,
    mean_trial_cost,
)
from tuning.controller.resources.placement import Node, compute_placement
from tuning.search.schedulers import Decision
from tuning.search.study.study import SweepStudy

HOUR = 3600.0
PRICES = PricesSpec(cpu_hour=0.5, gpu_hour=2.0, currency="EUR")
"""A trial of `trial` costs 3 EUR an hour."""


def trial(number, hours=1.0, state=TrialState.COMPLETED, ended=None, cpus=2.0, gpus=1.0):
    end = (100.0 + number if ended is None else ended) * HOUR
    attempt = Attempt(number=1, started=end - hours * HOUR, ended=end, cpus=cpus, gpus=gpus)
    return TrialRecord(
        id=f"t{number:04d}",
        number=number,
        params={},
        config={},
        seed=0,
        state=state,
        created=0.0,
        attempts=(attempt,),
    )


def limit(budget, values, *, mode="min", elapsed=0.0, gain=None, records=None):
    """Key and hardness of the limit that trials with these values reach, ending in this order."""
    records = records or [trial(i) for i in range(len(values))]
    tracker = BudgetTracker(BudgetSpec(**budget), mode, PRICES)
    for record, value in zip(records, values, strict=True):
        if value is not None:
            tracker.record_value(record.id, value)
        tracker.record_trial(record)
    found = tracker.limit(elapsed, lambda: gain)
    return found and (found.key, found.hard)


@pytest.mark.parametrize(
    ("budget", "more", "reached"),
    [
        ({"trials": 4}, {}, ("trials", False)),
        ({"trials": 5}, {}, None),
        ({"time": 60.0}, {"elapsed": 60.0}, ("time", True)),
        ({"time": 60.0}, {"elapsed": 59.0}, None),
        ({"trials": 1, "time": 1.0}, {"elapsed": 2.0}, ("time", True)),
        ({"cpu_hours": 8.0}, {}, ("cpu_hours", True)),
        ({"cpu_hours": 8.1}, {}, None),
        ({"gpu_hours": 4.0}, {}, ("gpu_hours", True)),
        ({"cost": 12.0}, {}, ("cost", True)),
        ({"cost": 13.0}, {}, None),
        ({"target": 2.0}, {}, ("target", True)),
        ({"target": 1.9}, {}, None),
        ({"target": 4.0}, {"mode": "max"}, ("target", True)),
        ({"target": 4.1}, {"mode": "max"}, None),
        ({"min_improvement": 0.1}, {"gain": 0.09}, ("min_improvement", False)),
        ({"min_improvement": 0.1}, {"gain": 0.1}, None),
        ({"min_improvement": 0.1}, {"gain": None}, None),
    ],
)
def test_budget_tracker_reports_each_limit_at_its_threshold(budget, more, reached):
    assert limit(budget, [4.0, 2.0, 3.0, None], **more) == reached


def test_patience_counts_trials_that_ended_after_the_best():
    assert limit({"patience": 2}, [4.0, 2.0, 3.0, None]) == ("patience", False)
    assert limit({"patience": 3}, [4.0, 2.0, 3.0, None]) is None
    assert limit({"patience": 3}, [4.0, 2.0, 2.0, 2.0, 2.0]) == ("patience", False)
    # in the order of their ends, not of their starts; running trials do not count
    late = [trial(0, ended=9), trial(1, ended=1), trial(2, ended=2)]
    assert limit({"patience": 2}, [1.0, 2.0, 3.0], records=late) is None
    running = [trial(0), trial(1, state=TrialState.RUNNING), trial(2)]
    assert limit({"patience": 2}, [1.0, 2.0, 3.0], records=running) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=40))
@settings(max_examples=60)
def test_budget_tracker_sums_equal_those_over_all_trials(events):
    """Trials report and end in any order, some of them after failures."""
    tracker = BudgetTracker(BudgetSpec(trials=99, patience=1, target=1.0), "min")
    records, values = {}, {}
    for hour, (number, value, ends) in enumerate(events):
        new = trial(number, state=TrialState.RUNNING).model_copy(update={"attempts": ()})
        before = records.get(number) or new
        if before.state.finished:
            continue
        values[number] = float(value)
        tracker.record_value(before.id, float(value))
        bad = ends and value == 9
        state = TrialState.FAILED if bad else TrialState.COMPLETED if ends else before.state
        made = len(before.attempts) + 1
        attempt = Attempt(number=made, started=0.0, ended=HOUR * (hour + 1), cpus=2.0)
        attempts = (*before.attempts, attempt)
        records[number] = before.model_copy(update={"state": state, "attempts": attempts})
        tracker.record_trial(records[number])
        assert tracker.trials_since_best == trials_since_best(records, values)
        assert tracker.cost.cpu_hours == pytest.approx(total_cost(records.values()).cpu_hours)
        good = [f"t{n:04d}" for n, r in records.items() if r.eligible and values[n] <= 1.0]
        limit = tracker.hard_limit(0.0)
        assert limit.description == f"{min(good)} reached 1" if good else limit is None


def trials_since_best(records, values):
    ended = [(r.attempts[-1].ended, n, r.eligible) for n, r in records.items() if r.state.finished]
    best, since = math.inf, 0
    for _, number, eligible in sorted(ended):
        better = eligible and values[number] < best
        best, since = (values[number], 0) if better else (best, since + 1)
    return since


def test_failed_trial_does_not_reach_the_target():
    records = [trial(0, state=TrialState.FAILED)]
    assert limit({"target": 2.0}, [1.0], records=records) is None
    assert limit({"patience": 1}, [1.0], records=records) == ("patience", False)


def test_budget_needs_a_limit_that_is_sure_to_be_reached():
    for budget in ({"cpu_hours": 1.0}, {"gpu_hours": 0.5}, {"time": "1h"}):
        assert make_spec(budget=budget).budget.bounded
    with pytest.raises(ValidationError, match="needs trials, time, cpu_hours, gpu_hours or cost"):
        make_spec(budget={"target": 0.1, "patience": 3})


def test_patience_refuses_several_metrics():
    with pytest.raises(ValidationError, match="patience takes one metric, not several"):
        make_spec(metric=["loss", "size"], budget={"trials": 9, "patience": 3})


def test_gpu_hours_are_refused_without_gpus():
    budget, resources = BudgetSpec(gpu_hours=2.0), ResourcesSpec()
    check_gpu_budget(budget, compute_placement(resources, [Node(cpus=2, gpus=1)]))
    with pytest.raises(UserError, match=r"a trial holds no GPU here \(1 CPU \(1 x 1 CPU\)\)"):
        check_gpu_budget(budget, compute_placement(resources, [Node(cpus=2, gpus=0)]))


def test_target_ends_the_sweep(tmp_path):
    spec = make_spec(budget={"trials": 50, "target": 1.0})
    run = open_run(tmp_path / "s", spec)
    first, second = run.next_trial(), run.next_trial()
    assert train(run, second, upto=2, value=lambda c, s: 5.0) is Decision.CONTINUE
    assert train(run, first, value=lambda c, s: 3.0 - s) is Decision.STOP
    assert not run.finished  # the other trial has not reported since
    assert train(run, second, value=lambda c, s: 5.0) is Decision.STOP
    assert run.finished
    assert run.next_trial() is None
    assert [r.reason for r in run.records.values()] == ["target at step 2", "target at step 3"]
    assert run.limit.description == "t0000 reached 1"
    # a resume starts no trial unless the target is lower
    assert open_run(tmp_path / "s", spec).finished
    lower = make_spec(budget={"trials": 50, "target": 0.5})
    assert open_run(tmp_path / "s", lower).next_trial().trial_id == "t0002"


def test_target_is_not_reached_while_an_outcome_constraint_is_violated(tmp_path):
    limits = {"budget": {"trials": 2, "target": 1.0}, "outcome_constraints": ["loss >= 0"]}
    run = open_run(tmp_path, make_spec(**limits, scheduler={"name": "none", "max_t": 9}))
    train(run, run.next_trial(), value=lambda c, s: s - 4.0)
    assert run.records["t0000"].reason == "target at step 4"


def test_patience_lets_running_trials_finish(tmp_path):
    run = open_run(tmp_path / "s", make_spec(budget={"trials": 50, "patience": 2}))
    jobs = [run.next_trial() for _ in range(4)]
    for job, level in zip(jobs, (1.0, 2.0, 3.0), strict=False):
        train(run, job, value=lambda c, s, level=level: level)
    assert run.limit.key == "patience"
    assert run.next_trial() is None
    assert not run.finished
    train(run, jobs[3], value=lambda c, s: 0.5)  # a new best: the search goes on
    assert run.limit is None
    assert run.next_trial() is not None


def test_cpu_hours_count_over_sessions(tmp_path):
    spec = make_spec(budget={"cpu_hours": 1.0}, resources={"workers": 2})
    run = open_run(tmp_path / "s", spec)
    job = run.next_trial()
    train(run, job, upto=2)
    run.interrupt()
    run.lifecycle.release()
    record = run.records[job.trial_id]
    attempt = record.attempts[0]
    assert (attempt.cpus, attempt.gpus) == (2.0, 0.0)
    long_ago = attempt.model_copy(update={"started": attempt.started - HOUR})
    record = record.model_copy(update={"attempts": (long_ago,)})
    write_trial(run.paths.trial(job.trial_id), record)
    again = open_run(tmp_path / "s", spec)
    assert again.next_trial() is None
    assert again.limit.description == "1 CPU-hours"
    cost = total_cost(again.records.values())
    assert cost.cpu_hours == pytest.approx(2.0, abs=0.1)
    assert open_run(
        tmp_path / "s", make_spec(budget={"cpu_hours": 9.0}, resources={"workers": 2})
    ).next_trial()


@pytest.mark.parametrize("killed_after", [1, 4])
def test_patience_ends_a_resumed_sweep_as_an_uninterrupted_one(tmp_path, killed_after):
    spec = make_spec(budget={"trials": 40, "patience": 3})
    whole = run_sweep(tmp_path / "whole", spec)
    assert len(whole.records) < 40
    run_trials(tmp_path / "s", spec, count=killed_after)
    resumed = run_sweep(tmp_path / "s", spec)
    assert outcome(resumed) == outcome(whole)


def test_min_improvement_ends_the_search(tmp_path):
    changes = {"scheduler": {"name": "none"}, "space": {"x": {"uniform": [-1.0, 1.0]}}}
    spec = make_spec(**changes, budget={"trials": 60, "min_improvement": 0.9})
    run = open_run(tmp_path / "s", spec)
    while (job := run.next_trial()) is not None:
        train(run, job, upto=1, value=lambda c, s: (c["x"] - 0.3) ** 2)
        run.on_ended(job.trial_id)
    assert run.limit.key == "min_improvement"
    assert 20 <= len(run.records) < 60
    assert 0 <= SweepStudy(run.paths.study, spec.name, spec).regret_bound() < 0.9


EACH = TrialCost(HOUR, Cost(2.0, 1.0), 3)


def test_mean_trial_cost_is_over_ended_trials():
    records = [trial(0, hours=1), trial(1, hours=3), trial(2, hours=9, state=TrialState.RUNNING)]
    assert mean_trial_cost(records) == TrialCost(2 * HOUR, Cost(4.0, 2.0), 2)
    assert mean_trial_cost(records[2:]) is None


@pytest.mark.parametrize(
    ("budget", "hours"),
    [
        ({"trials": 10}, 3.5),  # 7 trials, two at a time
        ({"trials": 10, "time": 5 * HOUR}, 1.0),
        ({"cpu_hours": 10.0}, 1.0),  # 6 CPU-hours are spent
        ({"gpu_hours": 13.0}, 5.0),
        ({"trials": 3}, 0.0),
    ],
)
def test_forecast_ends_at_the_first_limit(budget, hours):
    done = [trial(i) for i in range(3)]
    left = forecast(BudgetSpec(**budget), done, EACH, at_once=2, elapsed_s=4 * HOUR)
    assert left.seconds == pytest.approx(hours * HOUR)
    assert left.cost.cpu_hours == pytest.approx(hours * 4)
    assert left.cost.gpu_hours == pytest.approx(hours * 2)


def test_forecast_ends_where_the_money_is_spent():
    done = [trial(i) for i in range(3)]  # 9 EUR
    left = forecast(BudgetSpec(cost=15.0), done, mean_trial_cost(done, PRICES), 2, prices=PRICES)
    assert left.seconds == pytest.approx(HOUR)  # two more
    assert left.cost.cost == pytest.approx(6.0)
    assert str(left.cost) == "4 CPU-hours, 2 GPU-hours, 6.00 EUR"


def test_cost_of_failed_attempts_and_stopped_trials_is_shown_apart():
    failed = trial(1).attempts[0].model_copy(update={"error": "rank 0: lost"})
    retried = trial(1, hours=2).model_copy(update={"attempts": (failed, trial(1).attempts[0])})
    others = [trial(2, hours=4, state=state) for state in (TrialState.STOPPED, TrialState.FAILED)]
    shares = cost_shares([trial(0), retried, *others], PRICES)
    assert (shares.useful.cost, shares.stopped.cost, shares.failed.cost) == (6.0, 12.0, 15.0)
    assert shares.total.cost == 33.0
    assert str(shares).endswith(
        ", 33.00 EUR, of which 12.00 EUR stopped early and 15.00 EUR failed"
    )
    preempted = failed.model_copy(update={"cause": Cause.PREEMPTION})
    shares = cost_shares([retried.model_copy(update={"attempts": (preempted,)})], PRICES)
    assert str(shares).endswith("3.00 EUR, of which 3.00 EUR preempted")
    assert mean_trial_cost([trial(0), others[0]], PRICES).wasted == pytest.approx(0.8)
    assert str(cost_shares([trial(0)])) == "2 CPU-hours, 1 GPU-hours"


def test_price_of_a_gpu_is_that_of_its_name_and_of_its_machine():
    named = {"H100": 4.0, "H100 NVL": 3.0, "T4": 0.5, "H200": 3.5, "H200-spot": 1.4}
    prices = PricesSpec(cpu_hour=0.5, gpu_hour=2.0, accelerators=named, spot_cpu_hour=0.1)
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "Tesla T4", "", None)
    assert [prices.of_gpu(name) for name in names] == [4.0, 3.0, 0.5, 2.0, 4.0]
    assert prices.of_gpu("NVIDIA H200", spot=True) == 1.4
    assert prices.of_gpu("NVIDIA H200", spot=False) == prices.of_gpu("NVIDIA H200", None) == 3.5
    assert prices.of_gpu("Tesla T4", spot=True) == 0.5, "no price of its own: as elsewhere"
    other = prices.model_copy(update={"spot_gpu_hour": 0.2})
    assert [other.of_gpu("Tesla T4", spot) for spot in (True, False, None)] == [0.2, 0.5, 0.5]
    machines = [{"accelerator": "NVIDIA H200", "spot": spot} for spot in (True, False)]
    attempts = [trial(0).attempts[0].model_copy(update=machine) for machine in machines]
    costs = [attempt_cost(attempt, prices).cost for attempt in attempts]
    assert costs == [1.4 + 2 * 0.1, 3.5 + 2 * 0.5]


def test_forecast_subtracts_what_a_running_trial_has_cost():
    running = trial(0, hours=0.5, state=TrialState.RUNNING)
    assert forecast(BudgetSpec(trials=1), [running], EACH, at_once=2) == Forecast(
        0.5 * HOUR, Cost(1.0, 0.5)
    )


def test_start_of_workers_counts_in_budgets_and_not_in_a_trials_seconds():
    plain = trial(0, hours=3)
    attempt = plain.attempts[0].model_copy(update={"waited": HOUR})
    record = plain.model_copy(update={"attempts": (attempt,)})
    assert record.seconds == record.worker_seconds == 2 * HOUR
    assert mean_trial_cost([record]) == TrialCost(2 * HOUR, Cost(6.0, 3.0), 1)
    assert mean_trial_cost([record], starts=True) == TrialCost(3 * HOUR, Cost(6.0, 3.0), 1)
    left = forecast(BudgetSpec(trials=5), [record], mean_trial_cost([record]), at_once=2)
    assert left.seconds == 4 * HOUR
    never = attempt.model_copy(update={"waited": 4 * HOUR})
    assert never.seconds == 0.0


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"budget": {"trials": 99}}, True),
        ({"scheduler": {"name": "asha", "max_t": 27}}, False),
        ({"scheduler": {"name": "none", "max_t": 9}}, False),
        ({"fixed": {"epochs": 3}}, False),
    ],
)
def test_earlier_sweep_counts_if_its_trials_are_as_long(tmp_path: Path, changes, found):
    paths = new_sweep(make_spec(), tmp_path)
    add_trial(paths, 0, {9: 0.5})
    known = earlier_trial_cost(paths.storage, make_spec(**changes))
    assert known == (("simulated", TrialCost(3.5, Cost(), 1)) if found else None)


def test_session_time_adds_up_over_sessions(tmp_path: Path):
    paths = SweepPaths(tmp_path)
    write_state(paths, SweepState("mine", (), ()))
    with record_session_time(paths, NullFence()) as session:
        assert session.before == 0.0
    with record_session_time(paths, NullFence()) as session:
        assert 0.0 < session.before < 10.0
        begun = paths.trial("t0000").root
        begun.mkdir(parents=True)
        (begun / ".trial.json.1.tmp").symlink_to("renamed meanwhile")
        assert total_elapsed_s(paths) == session.before  # nothing is written yet
