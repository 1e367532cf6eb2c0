"""Muon trains stacks of matrices as matrices, and FLOPs are those of the model that is run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.cases.tiny_models import VOCABULARY, tiny_model
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.objective import step_flops
from trainables.training.optimizers import make_optimizer

LENGTH = 48


def gradients(model: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, VOCABULARY, (2, 8), generator=draw)
    model(input_ids=tokens, labels=tokens).loss.backward()


def test_muon_updates_each_expert_as_a_matrix_alone() -> None:
    model = tiny_model("mixtral")
    stack = model.model.layers[0].mlp.experts.gate_up_proj
    alone = [torch.nn.Parameter(matrix.detach().clone()) for matrix in stack]
    gradients(model)
    for matrix, gradient in zip(alone, stack.grad, strict=True):
        matrix.grad = gradient.clone()
    make_optimizer(model, "muon", 0.01, 0.1, 0.98, 0.001).step()
    torch.optim.Muon(alone, 0.01, 0.1, adjust_lr_fn="match_rms_adamw").step()
    for matrix, expected in zip(stack, alone, strict=True):
        torch.testing.assert_close(matrix, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    ("kind", "ends"),
    [
        ("gpt_oss", ("bias", "sinks", "norm.weight", "embed_tokens.weight", "lm_head.weight")),
        ("mamba", ("bias", ".D", "A_log", "conv1d.weight", "norm.weight", "norm_f.weight",
                   "embeddings.weight", "lm_head.weight")),
    ],
)  # fmt: skip
def test_adamw_trains_what_is_no_hidden_matrix(kind: str, ends: tuple[str, ...]) -> None:
    model = tiny_model(kind)
    by: Any = make_optimizer(model, "muon", 0.01, 0.1, 0.98)
    muon, decayed, kept = ({id(p) for p in group["params"]} for group in by.param_groups)
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[p] for p in muon} == {n for n in names.values() if not n.endswith(ends)}
    assert all(names[p].endswith(ends) for p in decayed | kept)
    assert not any(names[p].endswith("bias") for p in decayed)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    "kind",
    ["llama", "qwen3", "gemma3_text", "mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "gpt2"],
)
def test_flops_are_those_that_torch_counts_in_a_step(kind: str, frozen: bool) -> None:
    model = tiny_model(kind)
    if frozen:
        model.requires_grad_(False).enable_input_require_grads()
    found = step_flops(model, CausalLMConfig(sequence_length=LENGTH))
    model.set_attn_implementation("eager")
    if hasattr(model.config, "_experts_implementation"):
        model.set_experts_implementation("eager")
    tokens = torch.randint(1, VOCABULARY, (1, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens, use_cache=False).logits.sum().backward()
    assert found == pytest.approx(counter.get_total_flops() / LENGTH, rel=0.02)


def test_frozen_weights_get_no_gradient() -> None:
    model = tiny_model("llama")
    config = CausalLMConfig(sequence_length=LENGTH)
    trained = step_flops(model, config)
    weight = model.model.layers[0].mlp.up_proj.weight
    weight.requires_grad = False
    frozen = step_flops(model, config)
    assert trained is not None
    assert frozen is not None
    assert trained - frozen == 2 * weight.numel()


def test_flops_of_packed_weights_are_those_of_the_weights() -> None:
    bnb = pytest.importorskip("bitsandbytes").nn
    model, config = (
        tiny_model("llama").requires_grad_(False),
        CausalLMConfig(sequence_length=LENGTH),
    )
    plain, mlp = step_flops(model, config), model.model.layers[0].mlp
    old, quantize = mlp.up_proj, partial(bnb.Params4bit, quant_type="nf4", requires_grad=False)
    mlp.up_proj = bnb.Linear4bit(old.in_features, old.out_features, bias=False, device="meta")
    mlp.up_proj.weight = quantize(old.weight.data, module=mlp.up_proj).to("cpu")
    assert step_flops(model, config) == plain
    assert "forward" not in vars(mlp.up_proj)
