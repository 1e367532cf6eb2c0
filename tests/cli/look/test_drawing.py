"""The curve of a metric in the terminal."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tune
from tuning.cli.look.drawing import draw


def test_curve_of_a_falling_line() -> None:
    assert draw([(1, 8.0), (4, 0.0)], width=8, height=2) == [
        "8 ⠉⠒⠤⣀⠀⠀⠀⠀",
        "0 ⠀⠀⠀⠀⠉⠒⠤⣀",
        "  1      4",
    ]


def test_curve_of_a_constant_and_of_one_point() -> None:
    assert draw([(0, 2.0), (9, 2.0)], width=4, height=2)[0] == "2 ⠉⠉⠉⠉"
    assert draw([(3, 2.0)], width=4, height=2)[0] == "2 ⠁⠀⠀⠀"


@pytest.mark.parametrize("width", [40, 200])
def test_show_draws_the_curve_of_a_trial(tune: Tune, width: int) -> None:
    tune.sweep("mine")
    tune.monkeypatch.setenv("COLUMNS", str(width))
    winner = tune.best("mine")
    output = tune("show", "mine", winner["trial"]).out.splitlines()
    first = output.index("loss by step") + 1
    assert all(len(line) <= width for line in output[first : first + 11])
    assert output[first][-1] == chr(0x2800)  # it falls
    assert output[first + 9].startswith(f"{winner['value']:.4g} ")
    assert output[first + 10].split() == ["1", "9"]
