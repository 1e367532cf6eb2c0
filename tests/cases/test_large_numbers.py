"""Reported values near, and beyond, the range of floats."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tuning
from results.analysis.confirmation import half_width
from results.analysis.pareto import MAX_COMPARED, comparable, mean, rank_front
from results.paths import SweepPaths
from results.report.sweep_data import read_sweep_data
from results.report.sweep_page import write_report
from tests.trainables.local import make_worker
from trainables.job import as_number, as_step
from trainables.user_code.command.reports import JsonLines
from trainables.user_code.metrics import flat_numbers
from tuning.cli.look.drawing import draw
from tuning.search.importance import with_importances

HUGE = (1.7e308, 0.5, -1.7e308, 1e308, 2e-300, 9e307, 1e155, -1e160)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def test_numbers_of_any_kind_are_kept_and_nested_ones_are_flattened() -> None:
    reported = {
        "loss": np.float32(0.5),
        "eval": {"accuracy": torch.tensor(0.25), "by_class": {"cat": np.int64(3)}},
        "note": "text",
        "many": [1, 2],
    }
    numbers = flat_numbers(reported, "loss")
    assert numbers == {"loss": 0.5, "eval/accuracy": 0.25, "eval/by_class/cat": 3.0}
    assert {type(value) for value in numbers.values()} == {float}


def test_metric_of_the_sweep_must_be_a_number() -> None:
    with pytest.raises(TypeError, match="metric eval/loss is 'low'"):
        flat_numbers({"eval": {"loss": "low"}}, "eval/loss")


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), 10**5000, Fraction(10**400)],
    ids=["many", "less", "most", "part"],
)
def test_metric_beyond_floats_is_left_out_by_name(value: object) -> None:
    with pytest.warns(UserWarning, match="states is beyond the range of floats"):
        assert flat_numbers({"loss": 0.5, "states": value}, "loss") == {"loss": 0.5}
    warned = pytest.warns(UserWarning, match="metric loss")
    with warned, pytest.raises(TypeError, match="which is beyond the range of floats"):
        as_number("loss", value)


def test_whole_number_of_a_program_may_have_any_length(tmp_path: Path) -> None:
    file = tmp_path / "reports.jsonl"
    lines = JsonLines(file, "reports")
    file.write_text(f'{{"loss": 0.5, "states": {"9" * 5000}, "many": {"9" * 400}}}\n')
    (report,) = lines.new()
    with pytest.warns(UserWarning, match="beyond the range") as warned:
        assert flat_numbers(report.values, "loss") == {"loss": 0.5}
    assert [str(w.message).split()[1] for w in warned] == ["states", "many"]


@pytest.mark.parametrize("step", [10**40, 1e300, math.inf, math.nan, 1.5])
def test_step_is_a_whole_number_that_floats_count(step: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no whole number up to"):
        make_worker(tmp_path / "t0000").report(step=step, metrics={})  # type: ignore[arg-type]
    assert as_step(2**53) == 2**53


@given(st.lists(FLOATS, min_size=1))
def test_mean_lies_among_the_values(values: list[float]) -> None:
    found = mean(values)
    assert math.isfinite(found)
    assert found == pytest.approx(
        float(sum(map(Fraction, values)) / len(values)), rel=1e-9, abs=1e-300
    )


@given(FLOATS, FLOATS)
def test_comparable_keeps_the_order(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert comparable(low) <= comparable(high)
    assert math.isfinite(comparable(one) ** 2)
    assert comparable(math.nan) == -MAX_COMPARED


def test_width_and_front_of_huge_values() -> None:
    assert half_width([1.7e308, -1.7e308]) == math.inf
    points = [{"a": 1.7e308, "b": -1.7e308}, {"a": 0.0, "b": 0.0}, {"a": -1e308, "b": 1e308}]
    assert len(rank_front(points, {"a": "min", "b": "min"}, "knee", {})) == 3
    assert len(draw([(i, v) for i, v in enumerate(HUGE)])) == 11


@pytest.mark.parametrize("search", ["tpe", "gp", "mfgp", "cmaes", "nsga2", "sobol"])
def test_search_and_report_of_huge_values(search: str, tmp_path: Path) -> None:
    """Warnings, such as numpy's of an overflow, are errors."""
    sweep = tuning.Sweep(
        metric="loss",
        space={"x": tuning.uniform(0, 1), "n": tuning.randint(1, 9)},
        budget=tuning.Budget(trials=12),
        search={"name": search, "startup_trials": 2},
        storage=tmp_path,
    )
    while (trial := sweep.ask()) is not None:
        sweep.tell(trial, {"loss": HUGE[int(trial.id[1:]) % len(HUGE)]})
    data = with_importances(read_sweep_data(SweepPaths(sweep.folder)))
    assert data.importances == []
    write_report(SweepPaths(sweep.folder), data, tmp_path / "report.html")
    assert "importance of parameters is left out" in (tmp_path / "report.html").read_text()
    assert data.ranked[0].value == -1.7e308
