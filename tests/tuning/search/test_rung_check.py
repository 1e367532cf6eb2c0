"""`asha_promote` tests its rungs: it finds out that early values mislead, and when they do not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.loading.sweep_file import load_sweep
from tests.tuning.scheduler_simulator import MAX_T, SchedulerSimulator, make
from tuning.search.schedulers import Decision

TRIALS = 90


def quality(seed):
    """A number in [0, 1) for a trial, without a state."""
    return lambda trial: math.modf(abs(math.sin(int(trial[1:]) * 12.9898 + seed) * 43758.5453))[0]


def crossing(seed):
    """Whoever begins worst ends best."""
    of = quality(seed)
    return lambda trial, step: (of(trial) * (step - 3) / (MAX_T - 3),)


def parallel(seed):
    """The order of the trials never changes."""
    of = quality(seed)
    return lambda trial, step: (of(trial) - 1 / step,)


class Simulator(SchedulerSimulator):
    """Notes whether the rungs were found to mislead, after each report."""

    def __init__(self, seed, score, trials=TRIALS):
        super().__init__("asha_promote", seed, trials, score)
        self.misled = []

    def report(self, trial):
        super().report(trial)
        self.misled.append(self.scheduler.misleading)

    def steps_of(self, trials):
        return sum(self.steps[t] for t in trials)


@pytest.mark.parametrize("seed", range(5))
def test_crossing_curves_are_found(seed):
    play = Simulator(seed, crossing(seed)).run()
    assert play.misled[-1]
    of = quality(seed)
    complete = [t for t, decision in play.over.items() if decision is Decision.COMPLETE]
    assert max(map(of, complete)) > 0.8


@pytest.mark.parametrize("seed", range(5))
def test_curves_whose_order_never_changes_are_never_found_misleading(seed):
    play = Simulator(seed, parallel(seed)).run()
    assert not any(play.misled)
    assert len(play.steps) == TRIALS


def test_closes_when_a_trial_that_was_kept_wins():
    late = crossing(1)

    def score(trial, step):
        return (2.0 + step,) if int(trial[1:]) >= 60 else late(trial, step)

    play = Simulator(1, score).run()
    assert any(play.misled)
    assert not play.misled[-1]


def test_tests_cost_a_bounded_share_of_the_steps():
    order = parallel(3)
    tested = Simulator(3, order).run()
    untested = SchedulerSimulator("asha_promote", 3, TRIALS, order)
    untested.scheduler = make("asha_promote", check=False)
    spent, least = sum(tested.steps.values()), sum(untested.run().steps.values())
    assert spent <= least * 1.3


@pytest.mark.parametrize("curves", [crossing, parallel])
@given(seed=st.integers(0, 10**4), moves=st.integers(0, 1200))
@settings(max_examples=12, deadline=None)
def test_replayed_reports_restore_the_check(curves, seed, moves):
    whole = Simulator(seed, curves(seed)).run()
    killed = Simulator(seed, curves(seed)).run(moves).killed_and_resumed("asha_promote")
    assert killed.run().log == whole.log


def test_a_repeated_report_counts_once():
    scheduler = make("asha_promote")
    for trial in range(3):
        for _ in range(2):
            scheduler.decide(f"t{trial}", 1, (float(trial),))
    assert scheduler.next_to_resume(more=True, idle=False) == "t2"


def test_several_objectives_are_not_tested():
    play = Simulator(0, lambda trial, step: (*crossing(0)(trial, step), float(trial[1:])), 40)
    assert not any(play.run().misled)


@pytest.mark.parametrize(
    ("state", "check"), [({"frozen": True}, False), ({"begun": True}, False), ({}, "auto")]
)
def test_a_sweep_that_began_without_the_check_goes_on_without_it(tmp_path, state, check):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "name: s\ntrainable: digits\nmetric: loss\nspace: {x: {uniform: [0, 1]}}\n"
        "scheduler: {name: asha_promote, max_t: 9}\nbudget: {trials: 3}\n"
    )
    assert load_sweep(file, **state).spec.scheduler.check == check


@pytest.mark.parametrize("curves", [crossing, parallel])
def test_a_paused_trial_that_was_stopped_is_not_resumed(curves):
    class Stopper(Simulator):
        """Somebody stops every other paused trial that would continue."""

        stopped = frozenset()

        def fill(self):
            called = self.scheduler.next_to_resume(more=bool(self.left), idle=not self.lanes)
            assert called not in self.stopped
            if called is not None and self.rng.random() < 0.5:
                self.stopped |= {called}
                self.scheduler.on_trial_complete(called)
                return True
            return super().fill()

    assert len(Stopper(1, curves(1)).run().stopped) > 3
