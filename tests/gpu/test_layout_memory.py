"""The memory that `resources.layout: auto` computes for one GPU, against the allocator's peak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.layout import Layout
from tests.trainables.local import RecordingChannel, make_job
from trainables.causal_lm.config import CausalLMConfig
from trainables.launch.run_trial import run_trial
from tuning.evaluation.probe import Finished, Steps

CONFIG: dict[str, Any] = {
    "size": "small",
    "num_layers": 4,
    "vocab_size": 32_000,
    "sequence_length": 512,
    "batch_size": 16,
    "data": {"max_bytes": 400_000},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float32", "compile": False},
        {"dtype": "bfloat16", "compile": False},
        {"dtype": "bfloat16", "compile": False, "activation_checkpointing": True},
        {"dtype": "bfloat16", "compile": False, "micro_batch_size": 2},
        {"dtype": "float32", "compile": False, "experts": {"count": 4}},
        {"dtype": "bfloat16", "compile": False, "experts": {"count": 4}},
    ],
    ids=str,
)
def test_memory_of_one_gpu(tmp_path: Path, changes: dict[str, Any]) -> None:
    given = {**CONFIG, **changes}
    steps = Steps(8)
    job = make_job(tmp_path / "t", "causal_lm", CausalLMConfig.for_probe(given, 8))
    with pytest.raises(Finished):
        run_trial(job, RecordingChannel(), torch.device("cuda", 0), watch=steps.watch)
    memory = CausalLMConfig.model_validate(given).layout_memory(Layout(), on_gpu=True)
    assert memory is not None
    assert steps.peak == pytest.approx(memory.peak, rel=0.15)
