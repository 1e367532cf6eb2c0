"""Trials that are paused in the books: continued when called, cloned, and never forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from results.records import TrialState, read_trials
from tests.tuning.simulate import finish, make_spec, open_run, outcome, train
from tuning.search.schedulers import Decision

PROMOTE = {"name": "asha_promote", "grace_period": 1, "max_t": 9}
PBT = {"name": "pbt", "max_t": 9, "interval": 3, "mutate": ["x"]}


def spec(scheduler=PROMOTE, **changes):
    return make_spec(scheduler=scheduler, budget={"trials": 9}, **changes)


def weights(run, trial_id, step):
    return (run.paths.trial(trial_id).checkpoint(step) / "weights.txt").read_text()


def test_the_best_are_continued_and_the_rest_stopped(tmp_path):
    run = open_run(tmp_path, spec())
    finish(run)
    records = list(run.records.values())
    ends = Counter((r.state, r.end_step) for r in records)
    assert ends[TrialState.COMPLETED, 9] >= 1
    assert ends[TrialState.STOPPED, 1] >= 3
    assert ends[TrialState.STOPPED, 1] + ends[TrialState.STOPPED, 3] <= 8
    assert ends.total() == 9
    for record in records:
        assert record.reason.rpartition(" ")[0] in ("asha_promote at step", "max_t at step")
    assert {t.state.name for t in run._study._study.trials} == {"COMPLETE", "PRUNED"}


def test_a_paused_trial_waits_with_its_checkpoint(tmp_path):
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
    """The driver dies between two attempts, or before it acted on the last report."""
    whole = open_run(tmp_path / "whole", spec(scheduler))
    finish(whole)
    killed = open_run(tmp_path / "killed", spec(scheduler))
    for _ in range(moves):
        if (job := killed.next_trial()) is not None:
            before = killed.paths.trial(job.trial_id).record.read_bytes()
            train(killed, job)
            if lost:
                killed.paths.trial(job.trial_id).record.write_bytes(before)
                killed = open_run(tmp_path / "killed", spec(scheduler))
    resumed = open_run(tmp_path / "killed", spec(scheduler))
    finish(resumed)
    assert outcome(resumed) == outcome(whole)


def test_an_interrupted_sweep_keeps_its_paused_trials(tmp_path):
    run = open_run(tmp_path, spec())
    for _ in range(2):
        train(run, run.next_trial())
    run.interrupt()
    run.release()
    assert {r.state for r in read_trials(run.paths)} == {TrialState.PAUSED}


def test_a_population_takes_over_weights_and_parameters(tmp_path):
    run = open_run(tmp_path, spec(PBT))
    finish(run)
    records = read_trials(run.paths)
    assert {(r.state, r.end_step) for r in records} == {(TrialState.COMPLETED, 9)}
    taken = [(r, i) for r in records for i in r.lineage]
    assert {i.step for _, i in taken} == {3, 6}
    for record, inherited in taken:
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


def test_several_objectives_are_told_and_stopped_by(tmp_path):
    several = make_spec(
        metric=["loss", "size"],
        mode=["min", "max"],
        scheduler={**PROMOTE, "name": "asha"},
        budget={"trials": 9},
    )
    run = open_run(tmp_path, several)
    finish(run)
    states = Counter(r.state for r in run.records.values())
    assert states[TrialState.COMPLETED] >= 1
    assert states[TrialState.STOPPED] >= 1
    complete = [t for t in run._study._study.trials if t.state.name == "COMPLETE"]
    assert all(len(t.values) == 2 for t in complete)
    run.paths.study.unlink()
    again = open_run(tmp_path, several)
    assert [t.values for t in again._study._study.trials] == [
        t.values for t in run._study._study.trials
    ]
