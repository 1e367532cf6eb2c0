"""Spreads a model over ranks: its layers (tensor parallelism), then its weights (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from trainables.parallel.mesh import Mesh
from trainables.parallel.tensor import split_layers


def shard(
    model: nn.Module,
    blocks: Iterable[nn.Module],
    mesh: Mesh,
    dtype: torch.dtype = torch.float32,
    plan: Mapping[str, str] | None = None,
) -> None:
    """Spread a model over the ranks of a layout, in place; every rank has the whole model before.

    With `dp_shard` or `cp`, parameters become DTensors of which each rank holds some rows, on the
    mesh's device. The ranks gather those of a block before it computes; then they average its
    gradients over these axes and `dp_replicate`. With `tp`, layers are cut as `plan` says. Nothing
    happens where each rank has a copy of the model.

    Args:
        model: with the same weights on every rank, on the CPU or on the device.
        blocks: modules of the model that are gathered one at a time.
        mesh: of this rank.
        dtype: in which weights are gathered, and outputs computed; gradients are averaged, and
            weights kept, in float32.
        plan: of `split_layers`; needed with `tp`.
    """
    if not mesh.is_sharded:
        return
    if mesh.layout.tp > 1:
        split_layers(model, plan or {}, mesh.device_mesh["tp"])
    shard_weights(model, blocks, mesh, dtype)


def shard_weights(
    model: nn.Module, blocks: Iterable[nn.Module], mesh: Mesh, dtype: torch.dtype
) -> None:
    """Spread weights over the ranks of `dp_shard` and `cp`, as `shard` does."""
    if (data := mesh.data_mesh) is None:
        model.to(mesh.device)
        return
    policies: dict[str, Any] = {"mp_policy": precision(dtype), "offload_policy": offload(mesh)}
    again = mesh.layout.reshard_after_forward
    for block in blocks:
        fully_shard(block, mesh=data, reshard_after_forward=again, **policies)
    # the rest is needed at the end of the forward pass and at the begin of the backward pass
    fully_shard(model, mesh=data, reshard_after_forward=False, **policies)


def precision(dtype: torch.dtype) -> MixedPrecisionPolicy:
    """Weights are gathered in a dtype; gradients are averaged, and weights kept, in float32."""
    half = dtype if dtype != torch.float32 else None
    return MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)


def offload(mesh: Mesh) -> OffloadPolicy:
    """Where a rank keeps its part of the weights."""
    if not mesh.layout.cpu_offload:
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=mesh.device is not None and mesh.device.type == "cuda")


def device_of(model: nn.Module) -> torch.device:
    """On which a model computes; with `cpu_offload`, its weights are elsewhere."""
    weight = next(model.parameters())
    if isinstance(weight, DTensor) and weight.device_mesh.device_type == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return weight.device


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model of `transformers`, which its class names."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def free_gathered(model: nn.Module) -> None:
    """Free the gathered weights that a forward pass without a backward pass has left."""
    for module in _sharded(model):
        module.reshard()


@contextmanager
def gathered(model: nn.Module, mesh: Mesh) -> Iterator[None]:
    """In this block every rank has all weights of a model of `shard`, and can compute alone.

    All ranks enter it together.
    """
    modules = _sharded(model)
    for module in modules:
        module.unshard()
        module.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for module in modules:
            again = mesh.layout.reshard_after_forward and id(module) != id(model)
            module.set_reshard_after_forward(again, recurse=False)
            module.reshard()


def _sharded(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
