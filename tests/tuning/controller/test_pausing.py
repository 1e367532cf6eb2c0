"""Paused trials: promoted, cloned by populations, and kept over sessions."""

from __future__ import annotations

from collections import Counter

import pytest

from results.records.trial import Report, TrialState, read_reports, read_trials
from tests.tuning.simulate import finish, make_spec, open_run, outcome, run_sweep, run_trials, train
from tuning.search.schedulers import Decision

PROMOTE = {"name": "asha_promote", "grace_period": 1, "max_t": 9}
PBT = {"name": "pbt", "max_t": 9, "interval": 3, "mutate": ["x"]}


def spec(scheduler=PROMOTE, trials=9, **changes):
    return make_spec(scheduler=scheduler, budget={"trials": trials}, **changes)


def weights(run, trial_id, step):
    return (run.paths.trial(trial_id).checkpoint(step) / "weights.txt").read_text()


def test_best_trials_are_promoted_and_others_stay_paused(tmp_path):
    run = run_sweep(tmp_path, spec())
    ends = Counter((r.state, r.reason) for r in run.records.values())
    assert ends[TrialState.COMPLETED, "max_t at step 9"] >= 1
    assert ends[TrialState.PAUSED, "asha_promote at step 1"] >= 3
    assert ends.total() == 9
    assert {state for state, _ in ends} == {TrialState.COMPLETED, TrialState.PAUSED}
    assert {t.state.name for t in run.study.trials} == {"COMPLETE", "RUNNING"}
    assert open_run(tmp_path, spec()).finished


@pytest.mark.parametrize("searcher", ["random", "mfgp"])
def test_extended_sweep_promotes_as_a_longer_one(tmp_path, searcher):
    search = {"name": searcher, "startup_trials": 3}
    short, long = (spec(search=search, trials=n) for n in (9, 15))
    whole = run_sweep(tmp_path / "whole", long)
    run_sweep(tmp_path / "grown", short)
    grown = open_run(tmp_path / "grown", long)
    paused = {r.id for r in grown.records.values() if r.state is TrialState.PAUSED}
    finish(grown)
    assert outcome(grown) == outcome(whole)
    promoted = [grown.records[i] for i in paused if len(grown.records[i].attempts) > 1]
    assert promoted
    for record in promoted:  # continues from its checkpoint: no step is repeated
        files = grown.paths.trial(record.id)
        assert [line.attempt for line in read_reports(files)][:2] == [1, 2]
        assert weights(grown, record.id, 1) == f"{record.id} at 1"


def test_short_sweep_completes_its_best_trial(tmp_path):
    """The best trial completes, although a longer sweep would have proposed more first."""
    run_sweep(tmp_path / "grown", spec(trials=2))
    grown = open_run(tmp_path / "grown", spec(trials=9))
    (completed,) = (r for r in grown.records.values() if r.state is TrialState.COMPLETED)
    finish(grown)
    assert grown.records[completed.id] == completed
    assert len(grown.records) == 9


def test_hard_limit_leaves_paused_trials_paused(tmp_path):
    short = make_spec(scheduler=PROMOTE, budget={"trials": 9, "target": 0.1})
    run = open_run(tmp_path, short)
    while not run.finished:
        train(run, run.next_trial(), value=lambda c, s: 0.5 - 0.1 * s)
    run.lifecycle.release()
    assert {r.state for r in run.records.values()} == {TrialState.PAUSED, TrialState.STOPPED}
    longer = open_run(tmp_path, spec())
    before = {i for i, r in longer.records.items() if r.state is TrialState.PAUSED}
    finish(longer)
    assert any(len(longer.records[i].attempts) > 1 for i in before)


@pytest.mark.parametrize(
    ("scheduler", "ends"),
    [
        ({"name": "none", "max_t": 9}, {(TrialState.COMPLETED, 9)}),
        ({"name": "none", "max_t": 1}, {(TrialState.COMPLETED, 1), (TrialState.COMPLETED, 3)}),
        ({**PROMOTE, "name": "asha"}, {(TrialState.COMPLETED, 9), (TrialState.STOPPED, 1)}),
    ],
    ids=["none", "shorter", "asha"],
)
def test_changed_scheduler_decides_about_paused_trials(tmp_path, scheduler, ends):
    first = run_trials(tmp_path, spec(), count=3)
    assert {r.state for r in first.records.values()} == {TrialState.PAUSED}
    run = run_sweep(tmp_path, make_spec(scheduler=scheduler, budget={"trials": 1}))
    assert {(r.state, r.end_step) for r in run.records.values()} <= ends
    assert not any(r.state is TrialState.PAUSED for r in run.records.values())


def test_paused_trial_that_breaks_an_outcome_constraint_is_not_eligible(tmp_path):
    run = run_sweep(tmp_path, spec(search={"name": "random"}, outcome_constraints=["size <= 0.5"]))
    rests = [r for r in run.records.values() if r.state is TrialState.PAUSED]
    assert {r.eligible for r in rests} == {True, False}
    for record in rests:
        assert record.eligible == (abs(record.params["x"]) <= 0.5)
        assert record.eligible or "breaks size <= 0.5" in record.reason


def test_paused_trial_keeps_its_checkpoint(tmp_path):
    run = open_run(tmp_path, spec())
    job = run.next_trial()
    assert train(run, job) is Decision.PAUSE
    (record,) = read_trials(run.paths)
    assert (record.state, record.reason) == (TrialState.PAUSED, "asha_promote at step 1")
    assert record.attempts[-1].ended is not None
    assert weights(run, job.trial_id, 1) == "t0000 at 1"
    assert run.next_trial().trial_id == "t0001"


@pytest.mark.parametrize("scheduler", [PROMOTE, PBT], ids=lambda s: s["name"])
@pytest.mark.parametrize("moves", [1, 8, 14])
@pytest.mark.parametrize("lost", [False, True], ids=["decided", "undecided"])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, scheduler, moves, lost):
    """The driver dies between two attempts, or before it acts on the last report."""
    whole = run_sweep(tmp_path / "whole", spec(scheduler))
    killed = open_run(tmp_path / "killed", spec(scheduler))
    for _ in range(moves):
        if (job := killed.next_trial()) is not None:
            before = killed.paths.trial(job.trial_id).record.read_bytes()
            train(killed, job)
            if lost:
                killed.paths.trial(job.trial_id).record.write_bytes(before)
                killed = open_run(tmp_path / "killed", spec(scheduler))
    resumed = run_sweep(tmp_path / "killed", spec(scheduler))
    assert outcome(resumed) == outcome(whole)


def test_population_inherits_weights_and_parameters(tmp_path):
    run = run_sweep(tmp_path, spec(PBT))
    records = read_trials(run.paths)
    assert {(r.state, r.end_step) for r in records} == {(TrialState.COMPLETED, 9)}
    inheritances = [(r, i) for r in records for i in r.lineage]
    assert {i.step for _, i in inheritances} == {3, 6}
    for record, inherited in inheritances:
        donor = next(r for r in records if r.id == inherited.donor)
        assert inherited.donor_step == inherited.step
        assert inherited.before != inherited.after
        assert donor.id != record.id
        if inherited is record.lineage[-1]:
            assert record.params == inherited.after
            assert record.config["x"] == inherited.after["x"]
    last = [(r, r.lineage[-1]) for r in records if r.lineage]
    for record, inherited in last:
        assert weights(run, record.id, inherited.step).endswith(f"at {inherited.donor_step}")
        assert not weights(run, record.id, inherited.step).startswith(record.id)


def test_several_objectives_stop_trials_and_reach_the_study(tmp_path):
    several = make_spec(
        metric=["loss", "size"],
        mode=["min", "max"],
        scheduler={**PROMOTE, "name": "asha"},
        budget={"trials": 9},
    )
    run = run_sweep(tmp_path, several)
    states = Counter(r.state for r in run.records.values())
    assert states[TrialState.COMPLETED] >= 1
    assert states[TrialState.STOPPED] >= 1
    complete = [t for t in run.study.trials if t.state.name == "COMPLETE"]
    assert all(len(t.values) == 2 for t in complete)
    run.paths.study.unlink()
    again = open_run(tmp_path, several)
    assert [t.values for t in again.study.trials] == [t.values for t in run.study.trials]


def test_objectives_that_are_never_reported_together_fail_the_trial(tmp_path):
    several = {"metric": ["loss", "size"], "mode": "min", "scheduler": {"name": "none"}}
    run = open_run(tmp_path, make_spec(**several, budget={"trials": 1}))
    job = run.next_trial()
    for step, name in enumerate(("loss", "size", "loss"), 1):
        given = {"metrics": {name: 1.0}, "attempt": job.attempt, "time": 0.0}
        run.on_report(job.trial_id, Report(step=step, **given))
    run.on_ended(job.trial_id)
    assert run.records["t0000"].state is TrialState.FAILED
    assert "no report has loss and size; it has loss, size" in run.records["t0000"].reason


def test_trials_are_compared_within_their_group(tmp_path):
    """`opt.k` decides the loss; each of its values has rungs, and a complete trial."""
    run = run_sweep(tmp_path, spec({**PROMOTE, "per": ["opt.k"]}, trials=12))
    complete = {
        r.params["opt.k"] for r in read_trials(run.paths) if r.state is TrialState.COMPLETED
    }
    assert complete == {1, 2}
    assert open_run(tmp_path, run.table.spec).finished
    together = run_sweep(tmp_path / "together", spec(trials=12))
    best = [r for r in read_trials(together.paths) if r.state is TrialState.COMPLETED]
    assert {r.params["opt.k"] for r in best} == {1}


@pytest.mark.parametrize(
    ("scheduler", "word"),
    [({**PROMOTE, "per": ["width"]}, "width"), ({"name": "none", "per": ["x"]}, "no effect")],
)
def test_groups_of_no_use_are_refused(scheduler, word):
    with pytest.raises(ValueError, match=word):
        spec(scheduler)
