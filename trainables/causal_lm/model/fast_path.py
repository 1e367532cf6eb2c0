"""The faster loss and attention of a plainly causal Llama, which models have on a GPU.

With no mask, `transformers` looks for packed sequences in the position ids. For that it waits for
the GPU in each forward pass; under `torch.compile` it always builds a mask, with which SDPA takes
no flash kernel. Documents of packed sequences go to a flash kernel by their bounds, if their number
has a limit: the bounds then have one shape, and nobody waits for the GPU.
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
        most = getattr(model, "most_documents", 0) if dtype != torch.float32 else 0
        if positions is not None and most:
            bounds = document_bounds(positions, most * len(inputs))
            arguments: dict[str, Any] = {"input_ids": inputs, "position_ids": positions}
            arguments |= {"cu_seq_lens_q": bounds, "max_length_q": inputs.shape[1]}
        else:
            arguments = model_arguments(model, inputs, positions)
        # the residual stream has its dtype
        embedded = hf.get_input_embeddings()(arguments.pop("input_ids")).to(dtype)
        found: torch.Tensor = hf.base_model(
            inputs_embeds=embedded, use_cache=False, **arguments
        ).last_hidden_state
    return found


def limit_documents(model: nn.Module, most: int, device: torch.device) -> None:
    """Promise that no sequence has more documents, also counting padding as one.

    It is without effect where torch's flash kernel does not take the model's heads.
    """
    hf: Any = model
    width = getattr(hf.config, "head_dim", None) or (
        hf.config.hidden_size // hf.config.num_attention_heads
    )
    known = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    hf.most_documents = most if known and width % 8 == 0 and width <= 256 else 0


def document_bounds(positions: torch.Tensor, most: int) -> torch.Tensor:
    """Where each document begins in a flattened batch, then its size, int32 [most + 1].

    Args:
        positions: of each token in its document, int64 [batch, length].
        most: number of documents; more of them are an error of the index, on a GPU of its kernel.
    """
    size = positions.numel()
    begins = positions.flatten() == 0
    number = begins.cumsum(0) - 1
    places = torch.where(begins, torch.where(number < most, number, most + 2), most + 1)
    found = torch.full((most + 2,), size, dtype=torch.int32, device=positions.device)
    numbers = torch.arange(size, dtype=torch.int32, device=positions.device)
    return found.scatter(0, places, numbers)[: most + 1]


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
    """Attention of [batch, heads, tokens, width] to all tokens before, of their document if its
    bounds are given, or by the mask."""
    if (bounds := others.get("cu_seq_lens_q")) is not None:
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
        most, window = others["max_length_q"], (-1, 0)
        found: Any = varlen_attn(
            q, k, v, bounds, bounds, most, most, scale=scaling, window_size=window, enable_gqa=True
        )
        return found.unflatten(0, (len(query), -1)), None
    return attention(query, key, value, attention_mask, dropout, scaling), None
