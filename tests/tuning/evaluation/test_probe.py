"""A probe measures some steps of a trial on this rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from tests.trainables.local import RecordingChannel, make_job
from trainables.causal_lm.config import CausalLMConfig
from trainables.launch.run_trial import run_local
from trainables.sft.config import SFTConfig
from tuning.evaluation.probe import Finished, Steps

CONFIG = {
    "hidden_size": 128,
    "num_layers": 2,
    "sequence_length": 32,
    "batch_size": 8,
    "eval_every": 2,
    "data": {"max_bytes": 100_000},
}


def test_steps_are_timed_and_their_memory_is_that_of_the_arithmetic(tmp_path: Path) -> None:
    config = CausalLMConfig.for_probe(CONFIG, 8)
    steps, channel = Steps(8), RecordingChannel()
    with pytest.raises(Finished):
        run_local(make_job(tmp_path / "t", "causal_lm", config), channel, steps.watch)
    assert channel.reports == []
    assert len(steps.times) == 8
    assert steps.times == sorted(steps.times)
    assert steps.per_second > 0
    memory = CausalLMConfig.model_validate(CONFIG).layout_memory(Layout(), on_gpu=False)
    assert memory is not None
    assert steps.peak == pytest.approx(memory.peak, rel=0.15)


def test_reports_are_no_steps(tmp_path: Path) -> None:
    steps, channel = Steps(4), RecordingChannel()
    with pytest.raises(Finished):
        run_local(make_job(tmp_path / "t", "causal_lm", CONFIG), channel, steps.watch)
    assert [report.step for report in channel.reports] == [2]


def test_training_that_ends_before(tmp_path: Path) -> None:
    given: dict[str, Any] = {**CONFIG, "max_steps": 3}
    steps = Steps(8)
    run_local(make_job(tmp_path / "t", "causal_lm", given), RecordingChannel(), steps.watch)
    with pytest.raises(UserError, match="3 times, and 8 steps were asked for"):
        _ = steps.per_second


def test_configuration_of_a_probe_is_valid() -> None:
    assert SFTConfig.for_probe({"epochs": 2.0, "batch_size": 4}, 20) == {
        "batch_size": 4,
        "max_steps": 21,
        "eval_every": 21,
    }
