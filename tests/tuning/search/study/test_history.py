"""TPE learns from a bounded number of trials, which do not depend on the order of events."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from benchmarks.tpe_history import tell_value
from results.records.trial import TrialState as State
from tests.tuning.call_costs import costs
from tests.tuning.simulate import make_spec
from tuning.search.evidence import ScoreCurves
from tuning.search.study.proposal_sampler import History
from tuning.search.study.study import SweepStudy

LEVELS = (1.0, 3.0, 9.0)
MOST = 20


def history(curves: dict[int, dict[int, float]], most: int = 4) -> History:
    made = History(LEVELS, most, most // 2)
    for number, curve in curves.items():
        made.begin(number, {})
        if curve:
            made.rank(number, curve)
    return made


def seen(made: History, before: int = 1000) -> list[int]:
    return [trial.number for trial in made.visible(before)]


def test_short_history_is_visible_up_to_the_proposal() -> None:
    made = history({n: {} for n in range(4)})
    assert seen(made) == [0, 1, 2, 3]
    assert seen(made, before=2) == [0, 1]


def test_long_history_shows_the_best_and_the_newest() -> None:
    curves = {n: {1: 0.0} for n in range(10)}
    curves[0] = {1: -9.0, 3: -9.0}  # reached a higher level
    curves[3] = {1: 5.0}
    made = history(curves)
    assert seen(made) == [0, 3, 8, 9]
    made.rank(5, {1: 0.0, 3: 0.0, 9: 0.0})
    assert seen(made) == [0, 5, 8, 9]
    made.rank(9, {1: 0.0, 4: 1.0})  # the first value at or beyond a level counts
    assert seen(made) == [5, 7, 8, 9]


def test_end_replaces_what_is_known() -> None:
    made = history({0: {1: 1.0}, 1: {}})
    made.end(0, [(1, 1.0)], TrialState.COMPLETE, [1.0])
    first, second = made.visible(2)
    assert (first.number, first.state, first.value) == (0, TrialState.COMPLETE, 1.0)
    assert (second.number, second.state) == (1, TrialState.RUNNING)


@given(st.lists(st.dictionaries(st.sampled_from((1, 2, 4, 9)), st.floats(-1, 1))), st.randoms())
def test_visible_trials_do_not_depend_on_the_order_of_reports(
    curves: list[dict[int, float]], rng: random.Random
) -> None:
    known = dict(enumerate(curves))
    made = history({number: {} for number in known})
    steps = [(number, step) for number, curve in known.items() for step in sorted(curve)]
    rng.shuffle(steps)
    for number, _ in steps:
        made.rank(number, known[number])
    assert seen(made) == seen(history(known))


def study(folder: Path, trials: int) -> tuple[SweepStudy, ScoreCurves]:
    """A study of trials that have ended, each after one report."""
    folder.mkdir()
    spec = make_spec(search={"name": "tpe", "startup_trials": 3}, budget={"trials": 10_000})
    made, curves = SweepStudy(folder / "study.journal", "s", spec, MOST), ScoreCurves()
    for _ in range(trials):
        number, params = made.ask(curves)
        tell_value(made, curves, number, params, params["x"] ** 2, State.STOPPED)
    return made, curves


def test_cost_of_a_proposal_does_not_grow_with_trials(tmp_path: Path) -> None:
    def cost_of_a_proposal(trials: int) -> int:
        asked, curves = study(tmp_path / f"{trials}", trials)
        with costs() as cost:
            asked.ask(curves)
        assert (cost.opened, cost.synced) == (2, 1), "the journal, and its lock"
        return cost.calls

    cost_of_a_proposal(MOST + 1)  # imports
    few = cost_of_a_proposal(MOST + 2)
    assert cost_of_a_proposal(5 * MOST) == pytest.approx(few, rel=0.05)


def test_reopened_study_proposes_the_same(tmp_path: Path) -> None:
    whole, curves = study(tmp_path / "s", 2 * MOST)
    spec = make_spec(search={"name": "tpe", "startup_trials": 3}, budget={"trials": 10_000})
    (tmp_path / "copy").mkdir()
    copied = tmp_path / "copy" / "study.journal"
    copied.write_bytes((tmp_path / "s" / "study.journal").read_bytes())
    again, replayed = SweepStudy(copied, "s", spec, MOST), ScoreCurves()
    for number, curve in curves.items():
        for step, score in curve.items():
            replayed.add(number, step, score)
    assert again.ask(replayed) == whole.ask(curves)
