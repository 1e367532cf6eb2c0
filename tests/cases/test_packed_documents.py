"""A document in a packed sequence has the losses that it has alone, whatever the model's layers."""

from __future__ import annotations

import pytest
import torch

from search_spaces.errors import UserError
from tests.cases.tiny_models import VOCABULARY, tiny_model
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.compilation import compiles_documents
from trainables.causal_lm.model.objective import NextTokenLoss, next_token_loss
from trainables.causal_lm.model.packing import Packing, packing_of
from trainables.causal_lm.model.stages import LayerStage

CONFIG = CausalLMConfig(packing="documents")
ATTENTION = [
    "llama",
    "mixtral",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "phi",
    "stablelm",
    "olmo2",
    "deepseek_v3",
    "granite",
    "smollm3",
    "gpt2",
    "gpt_neox",
    "gpt_bigcode",
    "falcon",
    "opt",
    "gptj",
]
WINDOWS = [
    "mistral",
    "qwen2",
    "gemma2",
    "gemma3_text",
    "cohere2",
    "phi3",
    "starcoder2",
    "olmo3",
    "exaone4",
    "ministral",
    "gpt_oss",
    "llama4_text",
    "modernbert-decoder",
    "gpt_neo",
]
STATES = [
    "lfm2",
    "lfm2_moe",
    "qwen3_next",
    "qwen3_5_text",
    "mamba",
    "mamba2",
    "falcon_mamba",
    "falcon_h1",
    "jamba",
    "bamba",
    "granitemoehybrid",
    "recurrent_gemma",
    "rwkv",
    "xlstm",
    "minimax",
]
POSITIONS = ["bloom", "mpt", "xglm", "bart", "roberta"]
SIZES = [[20, 3, 17, 8], [48], [1, 9, 30, 2, 6]]


def packed() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, [3, 49], and the positions of all but the last, for documents of `SIZES`."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, VOCABULARY, (len(SIZES), 49), generator=draw)
    return tokens, torch.stack([torch.cat([torch.arange(n) for n in row]) for row in SIZES])


@torch.no_grad()
def separate(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """The losses of each document in a forward pass of its own."""
    parts = []
    for row, sizes in zip(tokens, SIZES, strict=True):
        for piece in row[:-1].split(sizes):
            begin = sum(len(p) for p in parts) % 48
            alone = row[None, begin : begin + len(piece) + 1]
            parts.append(next_token_loss(model, CONFIG, "none", alone))
    return torch.cat(parts)


@pytest.mark.parametrize("kind", [*ATTENTION, *WINDOWS, *STATES, *POSITIONS])
def test_packed_losses_are_those_of_separate_documents(kind: str) -> None:
    model, (tokens, positions) = tiny_model(kind), packed()
    expected = separate(model, tokens)
    with torch.no_grad():
        found = next_token_loss(model, CONFIG, "none", tokens, None, positions)
        mean = NextTokenLoss(model, CONFIG)(tokens, None, positions)
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
    torch.testing.assert_close(mean, expected.mean(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "packing"),
    [("llama", Packing.MASK), ("mistral", Packing.POSITIONS), ("lfm2", Packing.ROWS)],
)
def test_the_cheapest_right_form_is_taken(kind: str, packing: Packing) -> None:
    assert packing_of(tiny_model(kind), 48) is packing


def test_a_window_that_no_sequence_fills_needs_no_mask_of_its_own() -> None:
    model = tiny_model("mistral")
    assert packing_of(model, 6) is Packing.MASK
    assert packing_of(model, 48) is Packing.POSITIONS


@pytest.mark.parametrize("kind", ["lfm2", "bloom"])
def test_padded_documents_have_the_gradient_of_separate_ones(kind: str) -> None:
    model, (tokens, positions) = tiny_model(kind), packed()
    NextTokenLoss(model, CONFIG)(tokens[2:], None, positions[2:]).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    begin = 0
    for size in SIZES[2]:
        next_token_loss(model, CONFIG, "sum", tokens[2:, begin : begin + size + 1]).div(
            48
        ).backward()
        begin += size
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad, rtol=1e-4, atol=1e-6)


def test_a_model_that_is_not_causal_is_refused() -> None:
    model, (tokens, positions) = tiny_model("xlnet"), packed()
    with pytest.raises(UserError, match="xlnet: its outputs depend on the tokens that follow"):
        next_token_loss(model, CONFIG, "sum", tokens, None, positions)


def test_documents_of_many_shapes_are_not_compiled() -> None:
    model = tiny_model("lfm2")
    assert not compiles_documents(CausalLMConfig(packing="documents"), model)
    with pytest.raises(UserError, match="compile: true"):
        compiles_documents(CausalLMConfig(packing="documents", compile=True), model)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_stage_of_a_pipeline_keeps_windows(kind: str) -> None:
    model, (tokens, positions) = tiny_model(kind), packed()
    stage = LayerStage(model, range(2), CONFIG, torch.float32)
    with torch.no_grad():
        scores = stage(tokens[:, :-1], positions)
    found = torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    torch.testing.assert_close(found, separate(model, tokens), rtol=0, atol=5e-5)
