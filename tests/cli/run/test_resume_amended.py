"""`tune resume` with changes of the budget, the space or other settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import TrialRecord, TrialState, read_trials
from results.sweep_folder.lock import acquire_lock
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.sweep import SweepSpec
from tests.cli.conftest import Tune
from tests.tuning.simulate import finish, make_spec, next_job, open_run, train
from tuning.controller.sweep_dir.amend import Amendment, amend_sweep
from tuning.controller.sweep_dir.study import open_study
from tuning.search.compatibility import compatible_params
from tuning.search.schedulers import Decision


@pytest.fixture
def mine(tune: Tune) -> Callable[..., SweepPaths]:
    """Creates a sweep whose training code accepts any configuration."""
    tune.write("loop.py", "def train(config): report(config)\n")

    def make(name: str = "mine", **changes: Any) -> SweepPaths:
        return tune.sweep(name, trainable="loop.py:train", **changes)

    return make


Mine = Callable[..., SweepPaths]


def amend(
    paths: SweepPaths, *overrides: str, trials: str | None = None, time: str | None = None
) -> tuple[Amendment, SweepSpec]:
    changed = amend_sweep(paths, trials, time, overrides)
    assert changed is not None
    return changed, load_sweep(paths.spec).spec


def states_in_study(root: Path, spec: SweepSpec) -> list[str]:
    return [t.state.name for t in open_run(root, spec).study.trials]


def test_trials_of_an_earlier_file_stop_no_new_ones(mine: Mine) -> None:
    paths = mine(scheduler={"name": "asha", "max_t": 9})
    amend(paths, "fixed.data=harder", trials="+3")
    run = open_run(paths.root, load_sweep(paths.spec).spec)
    job = next_job(run)
    assert train(run, job, upto=8, value=lambda config, step: 99.0) is Decision.CONTINUE


def test_changed_outcome_constraints_hold_for_the_trials_that_ended(mine: Mine) -> None:
    paths = mine()
    before = read_trials(paths)
    amend(paths, "outcome_constraints=[size < 0]")
    assert read_trials(paths) == before, "a kill here leaves no trial that nothing checks again"
    told = open_run(paths.root, load_sweep(paths.spec).spec).study.trials
    broken = read_trials(paths)
    assert all(r.violated_constraints == ("size < 0",) for r in broken)
    assert all("; breaks size < 0" in r.reason for r in broken)
    assert [t.constraints for t in told] == [r.violations for r in broken]
    open_run(paths.root, amend(paths, "outcome_constraints=[]")[1])
    assert read_trials(paths) == before


def test_resume_extends_a_finished_sweep(mine: Mine) -> None:
    paths = mine()
    before = read_trials(paths)
    changed, spec = amend(paths, trials="+4")
    assert (spec.budget.trials, changed.excluded) == (10, ())
    run = open_run(paths.root, spec)
    finish(run)
    after = read_trials(paths)
    assert after[:6] == before
    assert len(after) == 10

    # the same trials as of a sweep that had this budget from the start
    whole = mine("whole", budget={"trials": 10})
    assert [r.params for r in read_trials(whole)] == [r.params for r in after]


def test_relative_budgets_add_to_the_current_ones(mine: Mine) -> None:
    paths = mine(budget={"trials": 3, "time": 3600.0})
    assert amend(paths, trials="7")[1].budget.trials == 7
    assert amend(paths, trials="+3")[1].budget.trials == 10
    assert amend(paths, time="+2h")[1].budget.time == 3 * 3600.0
    assert amend(paths, time="1h30m")[1].budget.time == 5400.0
    assert amend(paths, time="90")[1].budget.time == 90.0
    assert amend(paths, time="1234567")[1].budget.time == 1234567.0
    assert amend(paths, "budget.target=0.5")[1].budget.target == 0.5
    timed = mine("timed", done=False, budget={"cpu_hours": 1.0})
    assert amend(timed, trials="+3")[1].budget.trials == 3


def test_resume_keeps_the_old_spec_file(mine: Mine) -> None:
    paths = mine()
    first = paths.spec.read_text()
    amend(paths, trials="+4")
    second = paths.spec.read_text()
    amend(paths, "scheduler.max_t=27")
    assert (paths.replaced_files(1) / "sweep.yaml").read_text() == first
    assert (paths.replaced_files(2) / "sweep.yaml").read_text() == second
    assert second.splitlines()[1:4] == [
        "# frozen by `tune run simulated.yaml`",
        "# changed by `tune resume`",
        "# --set budget.trials=10",
    ]
    assert paths.study.exists()  # the space did not change


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--set", "metric=acc"], "--set metric: cannot change in a sweep that has begun ('loss')"),
        (["--set", "mode=max"], "--set mode: cannot change"),
        (["--set", "trainable=causal_lm"], "--set trainable: cannot change"),
        (["--set", "name=other"], "--set name: cannot change"),
        (["--set", "seed=9"], "--set seed: cannot change"),
        (["--set", "storage=other"], "--set storage: cannot change"),
        (["--set", "budget.trails=9"], "budget.trails: unknown key (did you mean 'trials'?)"),
        (["--set", "scheduler.max_t=0"], "must be a whole number >= 1, got 0"),
        (["--trials", "many"], "--trials many: must be a whole number, or +20 for 20 more"),
        (["--trials", "+"], "--trials +: must be a whole number"),
        (["--time", "+soon"], "--time +soon: must be a duration above zero"),
    ],
)
def test_resume_refuses_invalid_changes(tune: Tune, mine: Mine, args: list[str], said: str) -> None:
    paths = mine()
    before = paths.spec.read_bytes()
    assert said in tune.refused("resume", "mine", *args)
    assert paths.spec.read_bytes() == before
    assert not paths.history.exists()


def test_resume_does_not_change_a_running_sweep(tune: Tune, mine: Mine) -> None:
    paths = mine()
    with acquire_lock(paths.lock):
        assert "driven by process" in tune.refused("resume", "mine", "--trials", "+1")
        assert len(tune.refused("resume", "mine").splitlines()) == 1


def test_narrower_space_excludes_trials_that_do_not_fit(mine: Mine) -> None:
    paths = mine()
    records = read_trials(paths)
    inside = [r for r in records if r.params["x"] >= 0]
    assert 0 < len(inside) < 6
    changed, spec = amend(paths, "space.x={uniform: [0.0, 2.0]}", trials="+2")
    assert changed.excluded == tuple(r.id for r in records if r not in inside)
    said = str(changed).splitlines()[1]
    assert said.startswith(f"{6 - len(inside)} of 6 earlier trials no longer fit, and the search")
    assert said.endswith(", ".join(changed.excluded))
    assert (paths.replaced_files(1) / "study.journal").exists()

    (begun,) = open_study(paths, spec)[1]
    assert begun.startswith(f"{paths.study}: begun again for what was changed; ")
    run = open_run(paths.root, spec)
    known = run.study.trials
    assert [bool(t.params) for t in known] == [r in inside for r in records]
    finish(run)
    assert read_trials(paths)[:6] == records
    assert all(0 <= r.params["x"] <= 2 for r in read_trials(paths)[6:])
    assert states_in_study(paths.root, spec) == [t.state.name for t in run.study.trials]


def test_unfinished_trial_that_does_not_fit_keeps_its_configuration(mine: Mine) -> None:
    paths = mine(done=False)
    run = open_run(paths.root, load_sweep(paths.spec).spec)
    job = run.next_trial()
    train(run, job, upto=2)
    changed, spec = amend(paths, "space.opt.k={choice: [5, 6]}")
    assert changed.excluded == ("t0000",)
    run = open_run(paths.root, spec)
    again = run.next_trial()
    assert (again.trial_id, again.config) == ("t0000", job.config)
    train(run, again)
    finish(run)
    assert run.records["t0000"].state in (TrialState.COMPLETED, TrialState.STOPPED)
    assert {r.params["opt.k"] for r in read_trials(paths)[1:]} <= {5, 6}
    assert states_in_study(paths.root, spec)[0] == "FAIL"


def trial_of(spec: SweepSpec, **params: Any) -> TrialRecord:
    config = spec.nest(params)
    return TrialRecord(id="t0000", number=0, params=params, config=config, seed=0, created=0.0)


def test_fitting_compares_a_trial_with_a_changed_space() -> None:
    space = {"x": {"uniform": [-1.0, 1.0]}, "k": {"choice": [1, 2]}}
    record = trial_of(make_spec(space=space, fixed={"depth": 3}), x=0.5, k=2)
    x = {"x": {"uniform": [0.0, 9.0]}}

    def fits(space: dict[str, Any], **fixed: Any) -> Any:
        return compatible_params(make_spec(space=space, fixed=fixed), record)

    assert fits(space, depth=3) == {"x": 0.5, "k": 2}
    assert fits(x, depth=3, k=2) == {"x": 0.5}  # fixed to the trial's value
    assert fits(x, depth=3, k=1) is None
    assert fits(x, depth=3) is None  # now the trainable's default, which is unknown
    assert fits(space, depth=4) is None
    searched = {**space, "depth": {"randint": [1, 9]}}
    assert fits(searched) == {"x": 0.5, "k": 2, "depth": 3}
    new = {**space, "new": {"uniform": [0.0, 1.0]}}
    assert fits(new, depth=3) == {"x": 0.5, "k": 2}  # the trial has no value of it
    assert fits({**space, "x": {"uniform": [0.6, 1.0]}}, depth=3) is None


def test_new_parameter_keeps_the_evidence_of_the_others(mine: Mine) -> None:
    paths = mine(budget={"trials": 12})
    changed, spec = amend(paths, "space.new={uniform: [0.0, 1.0]}", trials="+3")
    assert changed.excluded == ()
    run = open_run(paths.root, spec)
    finish(run)
    assert all("new" in r.params for r in read_trials(paths)[12:])
    assert sum(t.state.is_finished() for t in run.study.trials) == 15


def test_retry_failed_runs_failed_trials_again(tune: Tune, mine: Mine) -> None:
    paths = mine(done=False)
    run = open_run(paths.root, load_sweep(paths.spec).spec)
    code, config = "rank 0: NameError: x (loop.py:1)", "rank 0: FloatingPointError: inf"
    for error in (code, config, code, config):
        run.on_failed(next_job(run).trial_id, error)
    run.lifecycle.release()
    before = [r.params for r in run.records.values()]
    changed = amend_sweep(paths, None, None, (), retry_failed=True)
    assert str(changed) == "failed trials that run again: t0000, t0002"
    mended = open_run(paths.root, load_sweep(paths.spec).spec)
    finish(mended)
    records = list(mended.records.values())
    assert [r.params for r in records][:4] == before
    assert [r.id for r in records if r.state is TrialState.FAILED] == ["t0001", "t0003"]
    assert [len(r.attempts) for r in records] == [2, 1, 2, 1, 1, 1]
    assert {t.state.name for t in mended.study.trials} == {"COMPLETE", "PRUNED"}
    assert "no trial of mine can be tried again" in tune.refused("resume", "mine", "--retry-failed")


def test_retry_failed_goes_on_with_unfinished_trials(mine: Mine) -> None:
    paths = mine(done=False)
    run = open_run(paths.root, load_sweep(paths.spec).spec)
    next_job(run)
    run.lifecycle.release()
    assert amend_sweep(paths, None, None, (), retry_failed=True) is None


def test_exit_code_is_1_if_no_trial_has_a_value(tune: Tune, mine: Mine) -> None:
    paths = mine(done=False, budget={"trials": 2})
    run = open_run(paths.root, load_sweep(paths.spec).spec)
    for _ in range(2):
        run.on_failed(next_job(run).trial_id, "rank 0: NameError: x (loop.py:1)")
    said = tune("resume", "mine", code=1)
    assert "failed 2 trials (t0000, t0001): rank 0: NameError: x (loop.py:1)" in said.out
    assert "try again  tune resume mine --retry-failed  (2 failed trials" in said.out
    assert "failed 2 trials (t0000, t0001)" in tune("show", "mine").out
    mine("well")
    tune("resume", "well")


def test_smaller_budget_says_what_it_means(tune: Tune, mine: Mine) -> None:
    mine()
    said = tune("resume", "mine", "--trials", "4").out
    assert "budget.trials=4 is less than the 6 trials that it has: they stay" in said
