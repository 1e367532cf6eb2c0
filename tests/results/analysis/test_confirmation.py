"""Intervals of a confirmation, and whether they separate the winner."""

import math

import pytest

from results.analysis.confirmation import Confirmation, ConfirmedTrial, Remeasurement, half_width
from tests.results.written import remeasured


def test_half_width_is_that_of_students_t() -> None:
    assert half_width([1.0]) is None
    # t(0.975, 2) = 4.302653; the deviation of 1, 2, 3 is 1
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_confirmation_is_clear_only_without_overlap() -> None:
    def made(*trials: ConfirmedTrial) -> Confirmation:
        return Confirmation(modes={"loss": "max"}, seeds=(1, 2, 3), trials=trials)

    near = remeasured("a", loss=(0, 0.50, 0.51, 0.52))
    far = remeasured("b", loss=(0, 0.9, 0.91, 0.92))
    assert made(near, far).clear
    assert made(near, far).winner.trial == "b"
    assert not made(near, remeasured("b", loss=(0, 0.51, 0.52, 0.53))).clear
    assert made(near).clear
    once = ConfirmedTrial(trial="a", series={"loss": Remeasurement(search=0.0, test=(0.5,))})
    assert not made(once, far).clear
    assert made(once).optimism == {}


def test_confirmation_with_a_diverged_training_is_read_again() -> None:
    trials = remeasured("a", loss=(0, 0.5, math.inf)), remeasured("b", loss=(0, 0.9, 0.8))
    made = Confirmation(modes={"loss": "min"}, seeds=(1, 2), trials=trials)
    assert Confirmation.model_validate_json(made.model_dump_json()) == made
    assert made.winner.trial == "b"
    assert not made.clear
