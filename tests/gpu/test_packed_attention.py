"""Packed conversations on a GPU: a flash kernel by bounds gives what a mask gives."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.fast_path import limit_documents
from trainables.causal_lm.model.objective import NextTokenLoss, move_model

DEVICE = torch.device("cuda", 0)
SHAPE = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def test_documents_by_bounds_have_the_loss_and_gradients_of_a_mask() -> None:
    torch.manual_seed(0)
    config = CausalLMConfig(hidden_size=64, num_heads=4, dtype="bfloat16", sequence_length=48)
    positions = torch.cat([torch.arange(size) for size in (20, 5, 23)]).repeat(3, 1).to(DEVICE)
    tokens = torch.randint(300, (3, 49), device=DEVICE)
    for heads in (4, 2):
        model = LlamaForCausalLM(
            LlamaConfig(hidden_size=64, vocab_size=300, num_key_value_heads=heads, **SHAPE)
        )
        objective = NextTokenLoss(move_model(model, DEVICE), config)
        found = []
        for most in (0, 3, 7):
            limit_documents(model, most, DEVICE)
            loss = objective(tokens, None, positions)
            found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
        torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=2e-3)
        torch.testing.assert_close(found[2], found[1], rtol=0.05, atol=2e-3)
