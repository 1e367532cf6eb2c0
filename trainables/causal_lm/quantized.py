"""The base of an adapter in 4 bits (QLoRA, Dettmers et al. 2023, 2305.14314), by `bitsandbytes`.

Linear layers but the output have NF4 weights, with quantized scales. Checkpoints hold the adapter;
averages and exports merge it into the base that it was trained on, rounded to 4 bits, in float32.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from trainables.causal_lm.lora import LoRAConfig, lora_problem
from trainables.config import Problem

if TYPE_CHECKING:
    import torch
    from torch import nn

EXTRA = "tune-platform[qlora]"


def missing_packages(lora: LoRAConfig) -> list[Problem]:
    """What an adapter needs and this machine has not."""
    quantize = _quantize_problem() if lora.quantize else None
    problems = {("lora",): lora_problem(), ("lora", "quantize"): quantize}
    return [(place, problem) for place, problem in problems.items() if problem is not None]


def _quantize_problem() -> str | None:
    """Why a quantized base cannot be trained on this machine, if so."""
    import torch

    if importlib.util.find_spec("bitsandbytes") is None:
        return f"4bit needs bitsandbytes; install with: pip install '{EXTRA}'"
    if not torch.cuda.is_available():
        return "4bit is trained on CUDA devices only, and this machine has none; remove it"
    return None


def quantize_base(model: nn.Module, dtype: torch.dtype) -> None:
    """Move the linear layers of a model to the GPU, with weights of 4 bits and products in `dtype`.

    Raises:
        UserError: it has matrices elsewhere.
    """
    import bitsandbytes

    layers: Any = bitsandbytes.nn
    hf: Any = model
    for name, layer in _layers(model):
        sizes = layer.in_features, layer.out_features, layer.bias is not None
        new = layers.Linear4bit(*sizes, dtype, quant_type="nf4", device="meta")
        weight = layer.weight.data
        packed = layers.Params4bit(weight, requires_grad=False, quant_type="nf4", module=new)
        new.weight, new.bias = packed.to("cuda"), layer.bias
        model.set_submodule(name, new)
    hf.is_loaded_in_4bit = True  # peft asks for it


def round_base(model: nn.Module) -> None:
    """Round the weights of the linear layers of a model as `quantize_base` does, in place."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    for _, layer in _layers(model):
        weight = layer.weight.data
        packed = quantize_4bit(weight.to(device), compress_statistics=True, quant_type="nf4")
        weight.copy_(dequantize_4bit(*packed))


def _layers(model: nn.Module) -> list[tuple[str, nn.Linear]]:
    from torch import nn

    hf: Any = model
    output, embedding = hf.get_output_embeddings(), hf.get_input_embeddings()
    layers = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    known = {id(p) for m in (*layers.values(), embedding) for p in m.parameters()}
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and id(parameter) not in known:
            raise UserError(
                f"lora.quantize: '{name}' of {hf.config.model_type} is of no linear layer;"
                " remove lora.quantize"
            )
    return [(name, layer) for name, layer in layers.items() if layer is not output]
