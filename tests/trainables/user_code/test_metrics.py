"""Numbers and steps of the reports of a user's loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from results.checkpoints.retention import Retention
from tests.trainables.local import make_job
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


def counter(folder: Path, begin: int | None = None, time_attr: str = "epoch") -> StepCounter:
    """Of an attempt whose sweep has the metric `loss`."""
    job = make_job(folder, time_attr=time_attr, retention=Retention(metric="loss"))
    return StepCounter(job, begin)


def test_epochs_from_zero_are_counted_from_one_in_every_attempt(tmp_path: Path) -> None:
    first = counter(tmp_path / "t0000")
    assert [first.number({"epoch": e}) for e in (0.0, 1.0)] == [
        (1, {"epoch": 1.0}),
        (2, {"epoch": 2.0}),
    ]
    resumed = counter(tmp_path / "t0000", 2)
    assert resumed.number({"epoch": 2.0, "loss": 1.0}) == (3, {"epoch": 3.0, "loss": 1.0})


def test_other_loops_keep_their_steps(tmp_path: Path) -> None:
    counted = counter(tmp_path / "t0000", 4)
    assert counted.number({"loss": 1.0}) == (5, {"loss": 1.0})
    named = counter(tmp_path / "t0001")
    assert named.number({"epoch": 1.0}) == (1, {"epoch": 1.0})
    assert named.number({"epoch": 2.5}) == (2, {"epoch": 2.5})
    assert named.number({"loss": 1.0}, 1000) == (1000, {"loss": 1.0})
