"""The winner of a sweep: by value, by rule, and after a confirmation."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from results.analysis.confirmation import Confirmation, read, write
from results.analysis.leaderboard import one_per_configuration, read_leaderboard
from results.analysis.selection import rank_candidates, select_winner, smoothed, winner_by_rule
from results.paths import SweepPaths
from results.records.trial import Report, TrialState
from search_spaces.errors import UserError
from search_spaces.spec.select import SelectSpec
from tests.reports import append_report
from tests.results.written import add_trial, remeasured
from tests.tuning.simulate import make_spec

SPEC = make_spec()


def order(sweep: SweepPaths, **select: Any) -> list[str]:
    return [line.record.id for line in rank_candidates(sweep, SPEC, SelectSpec(**select))]


def test_selection_compares_the_value_chosen_by_at(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.1, 2: 0.6, 3: 0.6})  # best at its best
    add_trial(sweep, 1, {1: 0.9, 2: 0.9, 3: 0.2})  # best at its last, which was luck
    add_trial(sweep, 2, {1: 0.4, 2: 0.4, 3: 0.4})  # best when smoothed
    add_trial(sweep, 3, {1: 0.01}, TrialState.FAILED)
    add_trial(sweep, 4, {1: 0.05, 2: math.nan})  # diverged at last, good before
    assert order(sweep) == ["t0001", "t0002", "t0000"]
    assert order(sweep, at="best") == ["t0004", "t0000", "t0001", "t0002"]
    assert order(sweep, at="smoothed") == ["t0002", "t0000", "t0001"]
    assert order(sweep, at="smoothed", smoothing=0.0) == order(sweep)
    choice = winner_by_rule(sweep, SPEC, SelectSpec(at="best"))
    assert (choice.line.value, choice.why) == (0.05, "its best loss is the lowest of 4 trials")


def test_selection_needs_a_finite_value(sweep: SweepPaths) -> None:
    with pytest.raises(UserError, match="none of 0 trials has a finite 'loss'"):
        select_winner(sweep, SPEC)
    add_trial(sweep, 0, {1: 0.5}, TrialState.FAILED)
    add_trial(sweep, 1, {1: math.inf})
    with pytest.raises(UserError, match=f"of 2 trials has .*; see: tune show {sweep.root}$"):
        select_winner(sweep, SPEC)


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.COMPLETED])
def test_configuration_is_not_judged_by_the_seeds_that_are_left(
    sweep: SweepPaths, state: TrialState
) -> None:
    add_trial(sweep, 0, {1: 0.1})
    add_trial(sweep, 0, {1: math.nan}, state, replicate=1)
    assert order(sweep) == ["t0000"]  # there is no other
    for replicate in range(2):
        add_trial(sweep, 1, {1: 0.2}, replicate=replicate)
    assert order(sweep) == ["t0001", "t0001-2"]
    board = [line.record.id for line in read_leaderboard(sweep, "loss", "min")]
    assert board == ["t0001", "t0001-2", "t0000", "t0000-2"]


@given(st.floats(-1e6, 1e6), st.integers(1, 50), st.floats(0, 0.99))
@settings(max_examples=50)
def test_smoothed_constant_is_unchanged(value: float, count: int, weight: float) -> None:
    assert smoothed([value] * count, weight) == pytest.approx(value)


def add_point(
    sweep: SweepPaths, number: int, loss: float, seconds: float, replicate: int = 0
) -> None:
    files = sweep.trial(add_trial(sweep, number, {}, replicate=replicate))
    metrics = {"loss": loss, "seconds": seconds}
    append_report(files, Report(step=1, metrics=metrics, attempt=1, time=1.0))


def test_selection_ranks_the_pareto_front(sweep: SweepPaths) -> None:
    for number, point in enumerate([(0.0, 10.0), (0.2, 3.0), (1.0, 0.0), (0.5, 9.0)]):
        add_point(sweep, number, *point)
    two = {"loss": "min", "seconds": "min"}
    assert order(sweep, objectives=two)[0] == "t0001"  # the knee
    assert "t0003" not in order(sweep, objectives=two)  # dominated
    heavy = {"objectives": two, "rule": "weighted"}
    assert order(sweep, **heavy, weights={"loss": 9.0})[0] == "t0000"
    assert order(sweep, **heavy, weights={"seconds": 9.0})[0] == "t0002"
    choice = winner_by_rule(sweep, SPEC, SelectSpec(objectives={"loss": "min", "seconds": "max"}))
    assert choice.why == "the knee of a Pareto front of 1 trial (min loss, max seconds)"
    with pytest.raises(UserError, match="a finite 'loss' and 'memory' yet"):
        order(sweep, objectives={"loss": "min", "memory": "min"})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"objectives": {"loss": "min"}}, "needs two metrics or more"),
        ({"at": "best", "objectives": {"a": "min", "b": "max"}}, "different steps"),
        ({"objectives": {"a": "min", "b": "max"}, "weights": {"c": 1.0}}, "'c' is not among"),
        ({"weights": {"c": 1.0}}, "there are none"),
        ({"objectives": {"a": "min", "b": "max"}, "weights": {"a": -1.0}}, "at least 0"),
    ],
)
def test_select_spec_refuses_contradictory_rules(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SelectSpec.model_validate(given)


def test_confirmation_takes_precedence_over_the_search(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.1})
    add_trial(sweep, 1, {1: 0.2})
    trials = (
        remeasured("t0000", loss=(0.1, 0.4, 0.5)),
        remeasured("t0001", loss=(0.2, 0.21, 0.19)),
    )
    made = Confirmation(modes={"loss": "min"}, seeds=(7, 8), trials=trials)
    assert read(sweep) is None
    write(sweep, made)
    assert read(sweep) == made
    assert made.winner.trial == "t0001"
    assert made.optimism == {"loss": pytest.approx(0.35)}
    assert "0.35 better than" in made.bias_lines[0]
    choice = select_winner(sweep, SPEC)
    assert (choice.line.record.id, choice.confirmed) == ("t0001", True)
    assert choice.why.startswith("confirmed on the test split with 2 fresh seeds: 0.2 ± 0.12")
    sweep.confirmation.write_text("{")
    assert select_winner(sweep, SPEC).line.record.id == "t0000"


def test_confirmation_picks_from_the_pareto_front(sweep: SweepPaths) -> None:
    for number, point in enumerate([(0.1, 1.0), (0.5, 2.0), (0.6, 3.0)]):
        add_point(sweep, number, *point)
    trials = (
        remeasured("t0000", loss=(0.1, 0.7, 0.7), seconds=(1.0, 4.0, 4.0)),
        remeasured("t0001", loss=(0.1, 0.5, 0.5), seconds=(1.0, 4.0, 4.0)),
        remeasured("t0002", loss=(0.1, 0.6, 0.6), seconds=(1.0, 3.0, 3.0)),
    )
    modes = {"loss": "min", "seconds": "min"}
    made = Confirmation(modes=modes, seeds=(1, 2), trials=trials)
    assert [m.trial for m in made.front] == ["t0001", "t0002"]
    assert made.optimism == {"loss": pytest.approx(0.6), "seconds": pytest.approx(3.0)}
    assert made.clear  # no two are the same in both
    heavy = made.model_copy(update={"rule": "weighted", "weights": {"seconds": 9.0}})
    assert heavy.winner.trial == "t0002"
    write(sweep, heavy)
    choice = select_winner(sweep, SPEC)
    assert choice.line.record.id == "t0002"
    assert choice.why == (
        "confirmed on the test split with 2 fresh seeds: loss 0.6 ± 0, seconds 3 ± 0, the "
        "weighted of a Pareto front of 2 of 3 trials"
    )


def test_selection_compares_seeds_by_their_mean(sweep: SweepPaths) -> None:
    for number, replicate, loss in ((0, 0, 0.0), (0, 1, 1.0), (1, 0, 0.4), (1, 1, 0.4)):
        add_point(sweep, number, loss, 5.0 - number, replicate)
    two = {"loss": "min", "seconds": "min"}
    assert order(sweep, objectives=two) == ["t0001", "t0001-2"]
    lines = rank_candidates(sweep, SPEC, SelectSpec())
    assert [line.record.id for line in one_per_configuration(lines)] == ["t0001", "t0000"]
