"""A tiny pretrained model, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainables.examples import EXAMPLES
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import new_model, save_model
from trainables.data.text.dataset import prepare

TINY = EXAMPLES["causal_lm"].config
SHAPE = ("hidden_size", "num_layers", "vocab_size")


def write_base(folder: Path, cache: Path, seed: int = 0) -> dict[str, Any]:
    """Write a random Llama with its tokenizer; returns a configuration that starts from it."""
    config = CausalLMConfig.model_validate({**TINY, "init_seed": seed})
    data = prepare(config, cache)
    folder.mkdir()
    save_model(new_model(config, data), config, data, folder)
    same = {k: v for k, v in TINY.items() if k not in SHAPE}
    return {**same, "model_name_or_path": str(folder)}
