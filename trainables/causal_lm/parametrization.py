"""Rules by which hyperparameters of a narrow, shallow model hold for a wide, deep one.

muP (Yang et al. 2022, 2203.03466) scales initial values and learning rates of each parameter by
the width; CompleteP (Dey et al. 2025, 2505.01618) also by the depth. Multipliers of the forward
pass are folded into weights (a factor of an output is the same factor of its matrix's initial value
and, as AdamW, Lion and Muon do not see the size of a gradient, of its learning rate), so a trained
model is a plain one of `transformers`. docs/transfer.md has the table; Muon's updates
have the RMS of AdamW's.

Weight decay is divided by the factor of the learning rate, so that a step takes the same part of a
weight, and AdamW's epsilon follows the size of the gradients.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from trainables.causal_lm.config import CausalLMConfig
from trainables.training.optimizers import Scale

_EMBEDDING, _LAST_NORM = "embed_tokens.weight", "model.norm.weight"
_QUERIES, _WRITERS = "q_proj.weight", ("o_proj.weight", "down_proj.weight")


def scales_of(model: nn.Module, config: CausalLMConfig) -> dict[str, Scale]:
    """The scale of each parameter by its name; empty for `parametrization: standard`.

    Args:
        model: a Llama of the configuration, whole or a part of it, with an initial spread of
            hidden_size^-1/2 for all matrices.
        config: of the trial.
    """
    if config.parametrization == "standard":
        return {}
    base = config.base
    width = config.hidden_size / base.hidden_size
    heads = width * base.heads / config.heads
    depth = config.num_layers / base.num_layers if config.parametrization == "completep" else 1.0
    rate = width**-0.5 if config.optimizer == "muon" else 1 / width

    def scale(name: str, p: nn.Parameter) -> Scale:
        if name.endswith(_EMBEDDING):
            return Scale(initial=math.sqrt(width), eps=1 / width)
        if name.endswith(_LAST_NORM):
            return Scale(1 / width, 1 / width)
        if p.ndim < 2:
            return Scale()
        factor = 1 / depth if name.endswith(_WRITERS) else 1.0
        factor *= heads**-0.5 if name.endswith(_QUERIES) else 1.0
        return Scale(factor, rate * factor, 1 / (width * depth * factor))

    return {name: scale(name, p) for name, p in model.named_parameters()}


@torch.no_grad()
def scale_initial_values(model: nn.Module, config: CausalLMConfig) -> None:
    """Multiply the random values of a new model, in place."""
    scales = scales_of(model, config)
    for name, p in model.named_parameters():
        if name in scales:
            p.mul_(scales[name].initial)
