"""Texts that a model continues together are those that it continues alone, whatever its cache."""

from __future__ import annotations

import pytest
import torch

from tests.cases.tiny_models import VOCABULARY, tiny_model
from trainables.generation.generate import decode

KINDS = [
    "llama",
    "mistral",
    "gemma3_text",
    "gpt_oss",
    "bloom",
    "opt",
    "bart",
    "roberta",
    "lfm2",
    "qwen3_next",
    "qwen3_5_text",
    "mamba",
    "mamba2",
    "falcon_h1",
    "jamba",
    "granitemoehybrid",
    "recurrent_gemma",
    "rwkv",
    "xlstm",
    "minimax",
]


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_prompts_go_on_as_each_text_alone(kind: str) -> None:
    model, draw = tiny_model(kind), torch.Generator().manual_seed(1)
    prompts = [
        torch.randint(1, VOCABULARY, (size,), generator=draw).tolist() for size in (12, 5, 12, 1)
    ]
    found: list[torch.Tensor] = []

    def choose(scores: torch.Tensor) -> torch.Tensor:
        found.append(scores.clone())  # the next call overwrites them
        return scores.argsort(dim=-1)[torch.arange(8), -1 - torch.arange(8) % 2]

    added = decode(model, prompts, frozenset(), 5, choose, samples=2)
    for text, tokens in enumerate(added.tolist()):
        prompt = prompts[text // 2]
        scores = model(input_ids=torch.tensor([prompt + tokens]), use_cache=False).logits[0]
        alone = scores[len(prompt) - 1 : -1].float()
        mine = torch.stack([step[text] for step in found])
        torch.testing.assert_close(mine, alone, rtol=1e-3, atol=1e-3)
