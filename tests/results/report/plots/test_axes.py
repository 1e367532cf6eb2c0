"""Hyperparameters are mapped to axes by their type and domain."""

import pytest

from results.report.plots.axes import ABSENT, axes, parameter_axis
from search_spaces.domains.domain import Domain


def test_axes_are_logarithmic_or_categorical() -> None:
    log = parameter_axis("lr", [1e-3, 0.1], Domain.model_validate({"loguniform": [1e-4, 1]}))
    assert log.values == pytest.approx([-3, -1])
    assert log.ticks[-2] == "0.01"
    mixed = parameter_axis("k", [10, 9, None, ABSENT, [1, 2]], None)
    assert list(mixed.ticks.values()) == ["9", "10", "(none)", "[1, 2]", "null"]
    assert mixed.values == [1, 0, 4, 2, 3]
    # a constant parameter has no axis
    assert list(axes([{"a": 1, "b": 1.0}, {"a": 1, "b": 2.0}], {})) == ["b"]
