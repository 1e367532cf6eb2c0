"""The data of a report: comparable steps, rungs, and importance of parameters."""

import pytest

from results.report.sweep_data import SweepData, common_step, value_at
from tests.tuning.simulate import make_spec
from tuning.search.importance import importances


def test_common_step_is_reached_by_half_of_the_trials() -> None:
    curves = [[(1, 0.5), (2, 0.4), (9, 0.1)], [(1, 0.6), (3, 0.3)], [(1, 0.9)], []]
    assert common_step(curves) == 3
    assert [value_at(c, 3) for c in curves] == [0.4, 0.3, None, None]
    assert common_step(curves, least=3) == common_step(curves, least=8) == 1
    assert common_step([]) == common_step([[]]) == 0


def test_rung_steps_are_those_of_the_scheduler() -> None:
    asha = make_spec(scheduler={"name": "asha", "grace_period": 2, "max_t": 50})
    assert SweepData(asha, [], {}).rung_steps == (2, 6, 18)
    assert SweepData(make_spec(scheduler={"name": "none"}), [], {}).rung_steps == ()


def test_importances_put_the_decisive_parameter_first(data: SweepData) -> None:
    found = importances(data)
    assert [i.method for i in found] == ["fANOVA", "PED-ANOVA"]
    for one in found:
        assert next(iter(one.shares)) == "lr"
        assert sum(one.shares.values()) == pytest.approx(1)
    assert found == importances(data)
