"""Conformance tests of all schedulers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.spec.scheduler import SCHEDULERS
from tests.tuning.scheduler_simulator import MAX_T, SchedulerSimulator, make, two_objectives
from tuning.search.schedulers import Decision


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
class TestConformance:
    @given(seed=st.integers(0, 10**6))
    @settings(max_examples=15)
    def test_replay_gives_the_same_decisions(self, name, seed):
        assert SchedulerSimulator(name, seed).run().log == SchedulerSimulator(name, seed).run().log

    @pytest.mark.parametrize("several", [False, True], ids=["one objective", "two objectives"])
    @given(seed=st.integers(0, 10**6), moves=st.integers(0, 120))
    @settings(max_examples=30)
    def test_resumed_scheduler_decides_as_uninterrupted(self, name, several, seed, moves):
        if several and name in ("median", "pb2"):  # the schema refuses them
            return
        score = {"score": two_objectives(seed)} if several else {}
        whole = SchedulerSimulator(name, seed, **score).run()
        killed = SchedulerSimulator(name, seed, **score).run(moves).killed_and_resumed(name)
        assert killed.run().log == whole.log
        assert Decision.COMPLETE in whole.over.values()

    @given(seed=st.integers(0, 10**6), moves=st.integers(0, 120))
    @settings(max_examples=15)
    def test_repeated_step_changes_nothing(self, name, seed, moves):
        whole = SchedulerSimulator(name, seed).run()
        half = SchedulerSimulator(name, seed).run(moves)
        for entry in half.log[-3:]:
            if entry[0] != "next" and entry[0] in [*half.over, *half.lanes]:
                half.scheduler.decide(*entry[:3])
        assert half.run().log == whole.log

    @given(seed=st.integers(0, 10**6))
    @settings(max_examples=15)
    def test_every_trial_gets_a_decision_and_one_completes(self, name, seed):
        play = SchedulerSimulator(name, seed).run()
        assert not play.left
        assert set(play.steps) == {f"t{i}" for i in range(9)}
        assert Decision.COMPLETE in play.over.values()

    def test_trial_is_complete_at_max_t(self, name):
        assert make(name).decide("a", MAX_T, (0.0,)) is Decision.COMPLETE

    def test_ties_stop_no_trial(self, name):
        scheduler = make(name)
        decisions = {scheduler.decide(f"t{i}", 1, (1.0,)) for i in range(9)}
        assert decisions <= {Decision.CONTINUE, Decision.PAUSE}
        play = SchedulerSimulator(name, 0, score=lambda t, s: (0.1,)).run()
        assert Decision.COMPLETE in play.over.values()
        assert Decision.STOP not in play.over.values()

    @pytest.mark.parametrize("bad", [math.nan, -math.inf])
    def test_score_that_is_not_a_number_is_the_worst(self, name, bad):
        play = SchedulerSimulator(
            name, 1, score=lambda t, s: (bad if t in ("t0", "t4") else 1.0 + s,)
        ).run()
        others = [d for t, d in play.over.items() if t not in ("t0", "t4")]
        assert Decision.COMPLETE in others
        assert Decision.STOP not in others

    def test_missing_max_t_is_refused_or_never_completes(self, name):
        if name in ("none", "median"):
            assert make(name, max_t=None).decide("a", 10**6, (0.0,)) is Decision.CONTINUE
        else:
            with pytest.raises(ValueError, match=f"{name} needs max_t"):
                make(name, max_t=None)
