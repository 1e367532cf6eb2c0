"""The faster loss and attention of a plainly causal Llama, which models have on a GPU.

With no mask, `transformers` looks for packed sequences in the position ids. For that it waits for
the GPU in each forward pass; under `torch.compile` it always builds a mask, with which SDPA takes
no flash kernel.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.packing import Packing, set_packing
from trainables.parallel.context import (
    attention,
    attention_name,
    model_arguments,
    use_attention,
)
from trainables.training.precision import autocast, compute_dtype

CAUSAL = "causal_sdpa"
"""Our attention's name in `transformers`. It has no function for masks there, so none is built."""


def speed_up(model: nn.Module) -> None:
    """Give a model the faster attention and loss if it is a plainly causal Llama; after `shard`."""
    hf: Any = model
    full = set(getattr(hf.config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    if hf.config.model_type != "llama" or not full:
        return
    from transformers import AttentionInterface

    AttentionInterface.register(CAUSAL, _causal_attention)
    use_attention(model, CAUSAL)
    set_packing(model, Packing.MASK)
    if isinstance(model, FSDPModule):  # the ranks gather the weights of embedding and output
        hf.hidden = MethodType(_embedded_and_computed, model)
        register_fsdp_forward_method(model, "hidden")


def is_fast(model: nn.Module) -> bool:
    """Whether a model has the faster attention, and takes the faster loss."""
    return attention_name(model) == CAUSAL


def hidden_states(
    model: nn.Module,
    inputs: torch.Tensor,
    config: CausalLMConfig,
    positions: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs of the last layer, [tokens, width], in the dtype of the computation."""
    if isinstance(model, FSDPModule):
        sharded: Any = model
        found: torch.Tensor = sharded.hidden(inputs, config, positions)
    else:
        found = _embedded_and_computed(model, inputs, config, positions)
    return found.reshape(-1, found.shape[-1]).to(compute_dtype(config.dtype, inputs.device))


def _embedded_and_computed(
    model: nn.Module,
    inputs: torch.Tensor,
    config: CausalLMConfig,
    positions: torch.Tensor | None,
) -> torch.Tensor:
    hf: Any = model
    dtype = compute_dtype(config.dtype, inputs.device)
    with autocast(config.dtype, inputs.device):
        arguments = model_arguments(model, inputs, positions)
        # the residual stream has its dtype
        embedded = hf.get_input_embeddings()(arguments.pop("input_ids")).to(dtype)
        found: torch.Tensor = hf.base_model(
            inputs_embeds=embedded, use_cache=False, **arguments
        ).last_hidden_state
    return found


def output_weight(model: nn.Module) -> torch.Tensor:
    """The matrix of the output, [vocabulary, width]."""
    hf: Any = model
    weight: torch.Tensor = hf.get_output_embeddings().weight
    return weight


def _causal_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of [batch, heads, tokens, width] to all tokens before, or by the mask."""
    return attention(query, key, value, attention_mask, dropout, scaling), None
