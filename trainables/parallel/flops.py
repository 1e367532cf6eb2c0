"""Floating-point operations: torch's formulas, and those that it lacks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import transformers.integrations.moe  # noqa: F401 - its operators
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

_ATTENTION = "_scaled_dot_product_flash_attention"
for _end in ("", "_backward"):  # the registry has the kernels of GPUs only
    _on_gpu, _on_cpu = _ATTENTION + _end, f"{_ATTENTION}_for_cpu{_end}"
    _formula = flop_registry[getattr(torch.ops.aten, _on_gpu)]
    register_flop_formula(getattr(torch.ops.aten, _on_cpu), get_raw=True)(_formula)


@register_flop_formula([torch.ops.aten._grouped_mm, torch.ops.transformers.grouped_mm_fallback])
def _grouped(tokens: tuple[int, ...], weight: tuple[int, ...], *_: Any, **__: Any) -> int:
    """Operations, by shapes, of tokens that are sorted by expert times matrices of the experts."""
    return 2 * math.prod(tokens) * weight[-1]


@register_flop_formula(torch.ops.transformers.grouped_mm_fallback_backward)
def _grouped_backward(*shapes: Any, **_: Any) -> int:
    return 2 * _grouped(*shapes)


FORMULAS: dict[Any, Any] = flop_registry
"""Of each operation, called with its arguments and `out_val`, its result."""


@contextmanager
def counted_flops(model: nn.Module) -> Iterator[FlopCounterMode]:
    """Count the operations of a model of `transformers` in a block: `get_total_flops()`.

    Experts are one operation there. The one by one loop over them reads which have tokens, which
    tensors without content do not say.
    """
    hf: Any = model
    before = hf.get_experts_implementation()
    with suppress(ValueError):  # it has no experts
        hf.set_experts_implementation("grouped_mm")
    try:
        with FlopCounterMode(display=False) as counter:
            yield counter
    finally:
        with suppress(ValueError):
            hf.set_experts_implementation(before)
