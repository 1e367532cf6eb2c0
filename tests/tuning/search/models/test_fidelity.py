from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from tuning.search.models.fidelity import comparable, rank_correlation
from tuning.search.models.gp import standardise

LEVELS = (1.0, 3.0, 9.0)


def curves(gain):
    """Twelve trials at the first rung, of which eight came to the second; `gain` by trial."""
    first = np.linspace(0.0, 1.1, 12)
    return [
        {1: float(v)} | ({3: float(v) + gain(i)} if i >= 4 else {}) for i, v in enumerate(first)
    ]


def test_values_are_shifted_by_the_median_gain():
    known = comparable(curves(lambda i: 0.5), LEVELS)
    index, value = known.newest()
    assert index.tolist() == list(range(12))
    assert value == pytest.approx(np.linspace(0.5, 1.6, 12))
    assert (known.target, known.misleads) == (1, False)


def test_comparable_holds_every_reached_level():
    known = comparable(curves(lambda i: 0.5), LEVELS)
    assert known.level[known.index == 0].tolist() == [0]
    assert known.level[known.index == 11].tolist() == [0, 1]
    assert known.value[known.index == 11] == pytest.approx([1.6, 1.6])


def test_misleading_rung_is_dropped():
    known = comparable(curves(lambda i: -0.3 * i), LEVELS)
    assert known.misleads
    assert known.index.tolist() == list(range(4, 12))
    assert set(known.level.tolist()) == {1}


def test_without_levels_the_last_value_counts():
    index, value = comparable([{1: 0.1, 7: 0.4}, {}, {2: 0.3}], ()).newest()
    assert index.tolist() == [0, 2]
    assert value.tolist() == [0.4, 0.3]


def test_comparable_of_empty_curves_is_empty():
    assert [len(part) for part in comparable([{}], LEVELS).newest()] == [0, 0]


def test_rank_correlation_equals_scipy():
    a, b = np.random.default_rng(0).integers(0, 9, (2, 40)).astype(float)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)


@pytest.mark.parametrize("huge", [1e160, 1e308])
def test_huge_values_stay_finite(huge):
    given = [{1: v, 3: v / 2} for v in np.linspace(-huge, 0.0, 12)]
    known = comparable(given, LEVELS)
    assert np.isfinite(known.value).all()
    assert np.isfinite(standardise(known.value)[0]).all()
