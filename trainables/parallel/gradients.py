"""The norm of gradients of which each rank has parts."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from trainables.parallel.mesh import Mesh
from trainables.parallel.sharded_state import is_first, local_part


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, mesh: Mesh) -> torch.Tensor:
    """Scale gradients so that their L2 norm over all ranks is at most `limit`.

    Args:
        parameters: of this rank; those without a gradient are left out.
        limit: infinite: gradients are not changed.
        mesh: of this rank.

    Returns:
        The norm before, the same on all ranks; it does not wait for a GPU.
    """
    if not mesh.is_sharded:
        return nn.utils.clip_grad_norm_(parameters, limit)
    weights = [p for p in parameters if p.grad is not None]
    for weight in weights:
        sum_gradient(weight)
    mine = [local_part(p.grad) for p in weights if p.grad is not None and is_first(p, mesh)]
    total = nn.utils.get_total_norm(mine).to(mesh.device).square()
    dist.all_reduce(total)
    norm = total.sqrt()
    if math.isfinite(limit):
        scale = (limit / (norm + 1e-6)).clamp(max=1.0)  # as torch does
        for weight in weights:
            if weight.grad is not None:
                part = local_part(weight.grad)
                part.mul_(scale.to(part.device))  # on the host with `cpu_offload`
    return norm


def sum_gradient(weight: nn.Parameter) -> None:
    """Sum a gradient of which each rank of `tp` has a summand; each keeps its part of the sum."""
    grad = weight.grad
    if not isinstance(grad, DTensor) or not isinstance(weight, DTensor):
        return
    if grad.placements != weight.placements:
        weight.grad = grad.redistribute(placements=weight.placements)
