"""The plots of a report show every trial and stay small."""

import plotly.graph_objects as go
import pytest

from results.report.plots import figures
from results.report.plots.axes import ABSENT, axes, parameter_axis
from results.report.sweep_data import SweepData
from search_spaces.domains.domain import Domain


def test_history_shows_every_trial_with_a_value(data: SweepData) -> None:
    drawn = figures.history(data)
    points = sum(len(t.x) for t in drawn.data if t.mode == "markers")
    assert points == len(data.ranked) == 39
    best = next(t for t in drawn.data if t.name == "best so far")
    assert best.y[-1] == pytest.approx(data.ranked[0].value)
    assert list(best.y) == sorted(best.y, reverse=True)


def test_thinned_curve_keeps_its_ends() -> None:
    curve = [(i, float(i)) for i in range(12_345)]
    thin = figures.thinned(curve)
    assert len(thin) == figures.MAX_POINTS
    assert (thin[0], thin[-1]) == (curve[0], curve[-1])


def test_parallel_coordinates_and_contour(data: SweepData) -> None:
    lines = figures.parallel_coordinates(data)
    assert lines is not None
    [trace] = lines.data
    assert [d.label for d in trace.dimensions] == ["lr", "x", "opt", "loss"]
    assert len(trace.dimensions[0].values) == len(data.ranked)
    surface = figures.contour(data)
    assert surface is not None
    assert [type(t) for t in surface.data] == [go.Contour, go.Scatter]


def test_axes_are_logarithmic_or_categorical() -> None:
    log = parameter_axis("lr", [1e-3, 0.1], Domain.model_validate({"loguniform": [1e-4, 1]}))
    assert log.values == pytest.approx([-3, -1])
    assert log.ticks[-2] == "0.01"
    mixed = parameter_axis("k", [10, 9, None, ABSENT, [1, 2]], None)
    assert list(mixed.ticks.values()) == ["9", "10", "(none)", "[1, 2]", "null"]
    assert mixed.values == [1, 0, 4, 2, 3]
    # a constant parameter has no axis
    assert list(axes([{"a": 1, "b": 1.0}, {"a": 1, "b": 2.0}], {})) == ["b"]
