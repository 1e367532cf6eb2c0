"""Numbers and steps of the reports of a user's loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from results.trial_paths import TrialPaths
from trainables.user_code.metrics import StepCounter, flat_numbers


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


def test_epochs_from_zero_are_counted_from_one_in_every_attempt(tmp_path: Path) -> None:
    paths = TrialPaths(tmp_path / "t0000")
    first = StepCounter(paths, "epoch", 0)
    assert [first.number({"epoch": e}) for e in (0.0, 1.0)] == [
        (1, {"epoch": 1.0}),
        (2, {"epoch": 2.0}),
    ]
    resumed = StepCounter(paths, "epoch", 2)
    assert resumed.number({"epoch": 2.0, "loss": 1.0}) == (3, {"epoch": 3.0, "loss": 1.0})


def test_other_loops_keep_their_steps(tmp_path: Path) -> None:
    counted = StepCounter(TrialPaths(tmp_path / "t0000"), "epoch", 4)
    assert counted.number({"loss": 1.0}) == (5, {"loss": 1.0})
    named = StepCounter(TrialPaths(tmp_path / "t0001"), "epoch", 0)
    assert named.number({"epoch": 1.0}) == (1, {"epoch": 1.0})
    assert named.number({"epoch": 2.5}) == (2, {"epoch": 2.5})
