"""What `torch.compile` compiles of a language model: the whole step, or each block of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from pydantic import BaseModel
from torch import nn

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.lora import scale_by_tensors
from trainables.causal_lm.model.packing import Packing, packing_of, takes_rows
from trainables.parallel.fsdp import blocks_of, device_of
from trainables.runtime.compiled_code import keep_compiled
from trainables.training.cross_entropy import linear_cross_entropy
from trainables.training.precision import autocast

COMPILED_FROM = 10_000_000
"""`compile: auto` compiles models with as many weights: it takes about a minute."""


M = TypeVar("M", bound=BaseModel)
MOST_SHAPES = 64
"""Batches have fewer shapes: some widths, of full micro-batches and of the rest."""
C = TypeVar("C", bound=CausalLMConfig)
_SHAPES = ("sequence_length", "batch_size", "micro_batch_size", "group_size", "max_new_tokens")


class TrainedLoss(nn.Module, Generic[C]):
    """The loss of a batch: what is compiled, and what data parallelism wraps.

    In `forward`, the numbers of `settings` are tensors, since a number of Python is a constant of
    the compiled code, which would be made again for each value of a search.

    Attributes:
        model: on its device.
        settings: the configuration, its floats as float32 tensors; 0, which turns a part off, is 0.
    """

    def __init__(self, model: nn.Module, config: C) -> None:
        super().__init__()
        self.model = model
        self.settings = _with_tensors(config, device_of(model))
        self._shape = tuple(getattr(config, name, None) for name in (*_SHAPES, "dtype"))

    @property
    def in_blocks(self) -> bool:
        """Whether the model's blocks are compiled, and not the whole of `forward`."""
        return False

    def compile(self, *given: Any, **others: Any) -> None:
        """Compile `forward`, or take over what an earlier trial of the same shape compiled."""
        from torch.compiler import config as compiler

        compiler.recompile_limit = MOST_SHAPES
        scale_by_tensors(self.model)
        keep_compiled((type(self), str(self.model), self._shape))
        if self.in_blocks:
            compile_blocks(self.model)
        else:
            super().compile(*given, **others)

    def __call__(self, *inputs: Any, **others: Any) -> Any:
        """See `forward`."""
        if self._compiled_call_impl is None:
            return super().__call__(*inputs, **others)
        # torch keeps no code on disk that enters autocast
        with autocast(self.settings.dtype, inputs[0].device):
            return super().__call__(*inputs, **others)


def _with_tensors(settings: M, device: torch.device) -> M:
    changed: dict[str, Any] = {}
    for name, value in settings:
        if isinstance(value, float) and value:
            changed[name] = torch.tensor(value, device=device)
        elif isinstance(value, BaseModel):
            changed[name] = _with_tensors(value, device)
    return settings.model_copy(update=changed)


def compile_blocks(model: nn.Module) -> None:
    """Compile the training steps of a model's blocks, and of the faster loss; before `shard`.

    All blocks of one kind share their code, so that its compilation takes as long as that of one.
    FSDP2's transfers are between the blocks, and not compiled.
    """
    hf: Any = model
    for block in blocks_of(model):
        block.forward = _compiled(block.forward, model)
    hf.cross_entropy = torch.compile(linear_cross_entropy, dynamic=False)


def _compiled(forward: Callable[..., Any], model: nn.Module) -> Callable[..., Any]:
    """A forward pass that is compiled where gradients are needed: evaluations have many shapes, and
    so have documents of a model that takes them in rows."""
    fast = torch.compile(forward, dynamic=False)

    def compute(*inputs: Any, **others: Any) -> Any:
        compiled = torch.is_grad_enabled() and not takes_rows(model)
        return (fast if compiled else forward)(*inputs, **others)

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


def compiles_documents(config: CausalLMConfig, model: nn.Module) -> bool:
    """Whether sequences of documents have one shape; it is found out, as that cannot be compiled.

    Raises:
        UserError: they have many shapes, and `compile` is true.
    """
    if packing_of(model, config.sequence_length) is not Packing.ROWS:
        return True
    if config.compile is True:
        hf: Any = model
        raise UserError(
            f"compile: true: packing {config.packing} pads each document of"
            f" {hf.config.model_type}, in too many shapes; use compile: auto"
        )
    return False


def may_compile(config: CausalLMConfig, device: torch.device) -> bool:
    """Whether the training step of some model is compiled."""
    return device.type == "cuda" if config.compile == "auto" else config.compile
