"""The optimizer and the learning rates that a configuration names."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from trainables.causal_lm.config import CausalLMConfig
from trainables.common.optimizers import make_optimizer
from trainables.common.schedules import lr_factor


def optimizer_of(model: nn.Module, config: CausalLMConfig) -> torch.optim.Optimizer:
    """The configured optimizer of a model's trained parameters."""
    return make_optimizer(
        model,
        config.optimizer,
        config.learning_rate,
        config.weight_decay,
        config.beta2,
        config.adamw_learning_rate,
    )


def lr_schedule(config: CausalLMConfig) -> Callable[[int], float]:
    """The configured factor of the learning rate by the number of steps done."""
    warmup = round(config.warmup_fraction * config.max_steps)
    decay = round(config.decay_fraction * config.max_steps)
    return lr_factor(config.schedule, warmup, decay, config.max_steps)
