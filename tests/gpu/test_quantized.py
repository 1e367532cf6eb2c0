"""An adapter of a base in 4 bits: it learns with less memory, resumes, and is merged as trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.gpu.test_training import DEVICE, train
from tests.trainables.causal_lm.pretrained import write_base
from tests.trainables.local import RecordingChannel, newest_checkpoint
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.trainable import CausalLM
from trainables.job import Answer
from trainables.training.task import open_task

pytest.importorskip("bitsandbytes")


def test_quantized_base_trains_resumes_and_is_merged(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    config: dict[str, Any] = {
        **write_base(tmp_path / "base", cache),
        "lora": {"rank": 4, "quantize": "4bit"},
        "dtype": "auto",
        "learning_rate": 1e-2,
    }
    whole = train(tmp_path / "whole", cache, config)
    stopped = train(tmp_path / "cut", cache, config, RecordingChannel({2: Answer.STOP}))
    rest = train(tmp_path / "cut", cache, config, attempt=2)
    losses = {r.step: r.metrics["eval_loss"] for r in whole.reports}
    again = {r.step: r.metrics["eval_loss"] for r in (*stopped.reports, *rest.reports)}
    assert again == pytest.approx(losses, rel=1e-3)
    assert losses[6] < losses[2]

    checked, saved = CausalLMConfig.model_validate(config), newest_checkpoint(tmp_path / "whole")
    found = CausalLM().evaluate(checked, saved.folder, Split.SELECTION, cache)
    assert found["eval_loss"] == pytest.approx(losses[6], rel=1e-3)
    task = open_task(checked, cache)
    task.export_hf(saved.folder, tmp_path / "hf")
    merged: Any = task.load_model(tmp_path / "hf").to(DEVICE)
    score = task.evaluate(merged, Split.SELECTION)["eval_loss"]
    assert score == pytest.approx(found["eval_loss"], rel=5e-3)
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    assert all(w.dtype == torch.float32 for w in weights.values())
