"""What `torch.compile` compiles of a language model: the whole step, or each block of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from search_spaces.layout import Layout
from trainables.causal_lm.config import CausalLMConfig
from trainables.common.cross_entropy import linear_cross_entropy
from trainables.parallel.fsdp import blocks_of

COMPILED_FROM = 10_000_000
"""`compile: auto` compiles models with as many weights: it takes about a minute."""


def compile_blocks(model: nn.Module) -> None:
    """Compile the training steps of a model's blocks, and of the faster loss; before `shard`.

    FSDP2's transfers are between the blocks, and not compiled.
    """
    hf: Any = model
    for block in blocks_of(model):
        block.forward = _compiled(block.forward)
    hf.cross_entropy = torch.compile(linear_cross_entropy, dynamic=False)


def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward pass that is compiled where gradients are needed: evaluations have many shapes."""
    fast = torch.compile(forward, dynamic=False)

    def compute(*inputs: Any, **others: Any) -> Any:
        return (fast if torch.is_grad_enabled() else forward)(*inputs, **others)

    return compute


def compiles(
    config: CausalLMConfig, model: nn.Module, device: torch.device, layout: Layout
) -> bool:
    """Whether to compile the training step."""
    if not config.compiles_on(layout):
        return False
    if config.compile != "auto":
        return config.compile
    size = sum(p.numel() for p in model.parameters())
    return may_compile(config, device) and size >= COMPILED_FROM


def may_compile(config: CausalLMConfig, device: torch.device) -> bool:
    """Whether the training step of some model is compiled."""
    return device.type == "cuda" if config.compile == "auto" else config.compile
