"""Schedulers: the decisions, their replay, and ASHA beside Ray Tune's own."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers import AsyncHyperBandScheduler

from search_spaces.schema import SchedulerSpec
from tuning.search.schedulers import SCHEDULERS, Decision, make_scheduler

MAX_T = 27


def spec(name="asha", **kw):
    return SchedulerSpec(**{"name": name, "grace_period": 1, "max_t": MAX_T, **kw})


# Trials report every step, interleaved in any order.
histories = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.floats(-10, 10)), min_size=1, max_size=120
)


def run(scheduler, history):
    """Feed (trial, score) pairs; each trial's steps count up, and end with its decision."""
    steps, over, decisions = {}, set(), []
    for trial, score in history:
        if trial in over:
            continue
        steps[trial] = steps.get(trial, 0) + 1
        decision = scheduler.decide(trial, steps[trial], score)
        decisions.append((trial, steps[trial], score, decision))
        if decision is not Decision.CONTINUE:
            over.add(trial)
    return decisions


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
class TestConformance:
    """What every scheduler must do, whatever it decides."""

    @given(histories)
    def test_replay_gives_the_same_decisions(self, name, history):
        decisions = run(make_scheduler(spec(name)), history)
        replayed = make_scheduler(spec(name))
        assert [replayed.decide(t, s, v) for t, s, v, _ in decisions] == [d[3] for d in decisions]

    @given(histories, st.integers(0, 119))
    def test_resumed_decides_as_uninterrupted(self, name, history, cut):
        whole = run(make_scheduler(spec(name)), history)
        resumed = make_scheduler(spec(name))
        for trial, step, score, _ in whole[:cut]:
            resumed.decide(trial, step, score)
        rest = [resumed.decide(t, s, v) for t, s, v, _ in whole[cut:]]
        assert rest == [d[3] for d in whole[cut:]]

    @given(histories, histories)
    def test_a_step_told_twice_changes_nothing(self, name, history, more):
        once, twice = (make_scheduler(spec(name)) for _ in range(2))
        for trial, step, score, _ in run(once, history):
            twice.decide(trial, step, score)
            twice.decide(trial, step, score)
        late = [(t + "'", v) for t, v in more]
        assert run(once, late) == run(twice, late)

    def test_a_trial_is_complete_at_max_t(self, name):
        scheduler = make_scheduler(spec(name))
        assert scheduler.decide("a", MAX_T, 0.0) is Decision.COMPLETE

    def test_ties_starve_nobody(self, name):
        scheduler = make_scheduler(spec(name))
        decisions = {scheduler.decide(f"t{i}", 1, 1.0) for i in range(9)}
        assert decisions == {Decision.CONTINUE}


class TestAsha:
    @given(histories, st.sampled_from([2, 3, 4]))
    def test_decides_as_ray_tune_does(self, history, reduction_factor):
        ours = make_scheduler(spec(reduction_factor=reduction_factor))
        rays = AsyncHyperBandScheduler(
            time_attr="step",
            metric="score",
            mode="max",
            max_t=MAX_T,
            grace_period=1,
            reduction_factor=reduction_factor,
        )
        trials = {}
        for trial, step, score, decision in run(ours, history):
            if trial not in trials:
                trials[trial] = SimpleNamespace(trial_id=trial)
                rays.on_trial_add(None, trials[trial])
            said = rays.on_trial_result(None, trials[trial], {"step": step, "score": score})
            assert (said == "CONTINUE") == (decision is Decision.CONTINUE), (trial, step)

    def test_stops_what_is_not_in_the_best_third(self):
        scheduler = make_scheduler(spec())
        assert [scheduler.decide(f"t{i}", 1, float(9 - i)) for i in range(3)] == [
            Decision.CONTINUE,
            Decision.STOP,
            Decision.STOP,
        ]


def test_asha_needs_max_t():
    with pytest.raises(ValueError, match="max_t"):
        SchedulerSpec(name="asha")
