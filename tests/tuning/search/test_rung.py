"""A rung compares trials as numpy and a stable sort do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.analysis.pareto import scalar_merits
from tuning.search.schedulers.rung import Rung

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
