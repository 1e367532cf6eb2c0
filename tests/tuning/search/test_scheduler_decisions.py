"""Decisions of each scheduler; a rung compares trials as numpy and a stable sort do."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.tune.schedulers import AsyncHyperBandScheduler

from results.analysis.pareto import scalar_merits
from tests.tuning.scheduler_simulator import (
    DOMAINS,
    MAX_T,
    PARAMS,
    SchedulerSimulator,
    history,
    make,
)
from tuning.search.schedulers import Decision
from tuning.search.schedulers.rung import Rung


class TestAsha:
    @given(
        st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(-10, 10)), max_size=120),
        st.sampled_from([2, 3, 4]),
    )
    def test_asha_decides_like_ray_tune(self, history, reduction_factor):
        ours = make(reduction_factor=reduction_factor)
        rays = AsyncHyperBandScheduler(
            time_attr="step",
            metric="score",
            mode="max",
            max_t=MAX_T,
            grace_period=1,
            reduction_factor=reduction_factor,
        )
        trials, steps, over = {}, Counter(), set()
        for trial, score in history:
            if trial in over:
                continue
            steps[trial] += 1
            if trial not in trials:
                trials[trial] = SimpleNamespace(trial_id=trial)
                rays.on_trial_add(None, trials[trial])
            result = {"step": steps[trial], "score": score}
            said = rays.on_trial_result(None, trials[trial], result)
            decision = ours.decide(trial, steps[trial], (score,))
            assert (said == "CONTINUE") == (decision is Decision.CONTINUE), (trial, steps[trial])
            over |= set() if decision is Decision.CONTINUE else {trial}

    def test_asha_stops_all_but_the_best_third(self):
        asha = make()
        assert [asha.decide(f"t{i}", 1, (float(9 - i),)) for i in range(3)] == [
            Decision.CONTINUE,
            Decision.STOP,
            Decision.STOP,
        ]

    def test_asha_keeps_the_pareto_front(self):
        asha = make(reduction_factor=2)
        front = [(0.0, 4.0), (4.0, 0.0)]
        assert {asha.decide(f"f{i}", 1, s) for i, s in enumerate(front)} == {Decision.CONTINUE}
        assert asha.decide("dominated", 1, (1.0, 1.0)) is Decision.STOP
        assert asha.decide("beyond", 1, (5.0, 5.0)) is Decision.CONTINUE


class TestPromote:
    def test_promotes_when_enough_trials_reached_the_rung(self):
        asha = make("asha_promote")
        for i, score in enumerate([0.3, 0.9]):
            assert asha.decide(f"t{i}", 1, (score,)) is Decision.PAUSE
            assert asha.next_to_resume(more=True, idle=True) is None
        asha.decide("t2", 1, (0.1,))
        assert asha.next_to_resume(more=True, idle=True) == "t1"
        asha.on_trial_resume("t1")
        assert asha.next_to_resume(more=True, idle=True) is None
        for i in range(3, 6):
            asha.decide(f"t{i}", 1, (0.2,))
        assert asha.next_to_resume(more=True, idle=True) == "t0"

    def test_promotes_from_the_highest_rung_first(self):
        asha = make("asha_promote")
        for i in range(9):
            asha.decide(f"t{i}", 1, (float(i),))
        for i in (8, 7, 6):
            asha.on_trial_resume(f"t{i}")
            asha.decide(f"t{i}", 3, (float(i),))
        assert asha.next_to_resume(more=True, idle=False) == "t8"

    def test_short_sweep_completes_one_trial(self):
        play = SchedulerSimulator("asha_promote", 3, trials=2).run()
        assert Counter(play.over.values()) == {Decision.COMPLETE: 1}

    def test_rungs_are_whole_steps(self):
        assert make("asha_promote", reduction_factor=2.5).rungs == (1, 3, 7, 16)


class TestHyperband:
    def test_hyperband_brackets_have_different_first_rungs(self):
        stopped = Counter()
        hyperband = make("hyperband")
        for i in range(60):
            for step in range(1, MAX_T):
                if hyperband.decide(f"t{i}", step, (-float(i),)) is Decision.STOP:
                    stopped[step] += 1
                    break
        assert set(stopped) == {1, 3, 9}
        assert stopped[1] > stopped[3] > stopped[9]


class TestMedian:
    def test_median_stops_below_the_median_of_averages(self):
        median = make("median", grace_period=2)
        for i in range(3):
            for step in (1, 2, 3):
                assert median.decide(f"t{i}", step, (float(i + step),)) is Decision.CONTINUE
        assert median.decide("bad", 1, (0.0,)) is Decision.CONTINUE
        assert median.decide("bad", 2, (2.4,)) is Decision.STOP  # averages: 1.5, 2.5, 3.5
        assert median.decide("good", 2, (2.6,)) is Decision.CONTINUE


@pytest.mark.parametrize("name", ["pbt", "pb2"])
class TestPopulation:
    def generation(self, name, at=9, **kw):
        population = make(name, interval=3, **kw)
        for step in range(3, at + 1, 3):
            for i in range(8):
                assert population.decide(f"t{i}", step, (i * float(step),)) is Decision.PAUSE
                if step < at:
                    population.on_trial_resume(f"t{i}")
        return population

    def test_worst_copy_the_best_before_others_continue(self, name):
        population = self.generation(name)
        order, exploits = [], {}
        while (called := population.next_to_resume(more=False, idle=False)) is not None:
            order.append(called)
            exploits[called] = population.exploit(called, history)
            population.on_trial_resume(called)
        assert order == [f"t{i}" for i in range(8)]
        assert [t for t, e in exploits.items() if e] == ["t0", "t1"]
        for exploit in (exploits["t0"], exploits["t1"]):
            assert exploit.donor in ("t6", "t7")
            assert exploit.params["layers"] == PARAMS["layers"]
            assert exploit.params["lr"] != PARAMS["lr"]
            assert all(DOMAINS[k].contains(v) for k, v in exploit.params.items())

    def test_population_waits_for_the_last_trial(self, name):
        population = self.generation(name)
        population.on_trial_resume("late")
        assert population.next_to_resume(more=False, idle=False) is None
        population.on_trial_complete("late")
        assert population.next_to_resume(more=True, idle=False) is None
        assert population.next_to_resume(more=False, idle=False) == "t0"

    def test_only_parameters_of_mutate_change(self, name):
        params = self.generation(name, mutate=["momentum"]).exploit("t0", history).params
        assert {k for k in params if params[k] != PARAMS[k]} == {"momentum"}


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from((0.0, 1.0, 2.0))
PERCENTS = st.sampled_from((50.0, (1 - 1 / 3) * 100, 75.0, 90.0)) | st.floats(0, 100)


def rung_of(scores: list[tuple[float, ...]]) -> Rung:
    rung = Rung()
    for number, one in enumerate(scores):
        rung.add(f"t{number}", one)
    return rung


@given(st.lists(NUMBERS, min_size=2), PERCENTS)
def test_percentile_of_others_is_numpys(values: list[float], percent: float) -> None:
    scores = [(value,) for value in values]
    *others, mine = scalar_merits(scores)
    newest = f"t{len(values) - 1}"
    rung = rung_of(scores)
    assert rung.percentile_of_others(newest, percent) == np.percentile(others, percent)
    assert rung.merit(newest) == mine


@pytest.mark.parametrize("objectives", [1, 2])
@given(st.data())
def test_order_is_by_merit_then_by_arrival(objectives: int, data: st.DataObject) -> None:
    scores = data.draw(st.lists(st.tuples(*[NUMBERS] * objectives), min_size=1))
    rung, merits = rung_of(scores), scalar_merits(scores)
    expected = sorted(range(len(scores)), key=lambda i: -merits[i])
    assert [rung.index(f"t{i}") for i in expected] == list(range(len(scores)))
    assert sorted(range(len(scores)), key=lambda i: rung.place(f"t{i}")) == expected


def test_only_trial_has_no_others() -> None:
    assert rung_of([(1.0,)]).percentile_of_others("t0", 50.0) is None
