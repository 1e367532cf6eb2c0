"""Spreads a model over ranks: its layers (tensor parallelism), its experts, its weights (FSDP2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.func import functional_call

from search_spaces.errors import UserError
from trainables.parallel.mesh import Mesh
from trainables.parallel.sharded_state import local_part
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


_EXPERTS = "ep_dispatch_experts"
"""What a plan of `transformers` calls a module of stacked experts."""


def split_experts(model: nn.Module, mesh: Mesh, dtype: torch.dtype) -> None:
    """Give each rank of `ep` some experts of a model of `transformers`, in place.

    A weight is cut along its first dimension over `ep`. What remains is cut along its second one
    over the other ranks of `dp_shard`, `cp` and `tp`, which gather it before they compute. Ranks of
    `tp` send a part each of the tokens that they have in common. Nothing happens without `ep` and
    `tp`.

    Args:
        model: with the same weights on every rank; `shard` comes after.
        mesh: of this rank.
        dtype: as of `shard`.

    Raises:
        UserError: the model has no experts, or sizes do not divide by the ranks.
    """
    layout = mesh.layout
    found = _experts_of(model)
    if layout.ep > 1 and not found:
        raise UserError(f"layout ep: {type(model).__name__} has no experts")
    if layout.ep == layout.tp == 1 or not found:
        return
    ranks = mesh.expert_mesh
    tensor = mesh.device_mesh["tp"] if layout.tp > 1 else ranks["tp"]
    data: DeviceMesh = ranks[tuple(n for n in ranks.mesh_dim_names or () if n.startswith("dp_"))]
    for module in found:
        _send_tokens(module, ranks["ep"], tensor)
        fully_shard(
            module,
            mesh=data,
            mp_policy=precision(dtype),
            offload_policy=offload(mesh),
            reshard_after_forward=layout.reshard_after_forward,
            shard_placement_fn=lambda weight: Shard(1),
        )
        sharded: Any = module  # gradients are sums over the tokens of all ranks
        sharded.set_gradient_divide_factor(float(layout.data_parallel * layout.cp))
        # gloo has no other reduction; for one rank, torch 2.13 would divide twice
        sharded.set_force_sum_reduction_for_comms(ranks["dp_shard"].size() > 1)


def _experts_of(model: nn.Module) -> list[nn.Module]:
    """Modules of stacked experts, which the model's class names."""
    hf: Any = model
    plan = getattr(hf, "ep_plan", None) or {}
    patterns = [name for name, kind in plan.items() if kind == _EXPERTS]
    modules = model.named_modules()
    return [part for name, part in modules if any(fnmatchcase(name, p) for p in patterns)]


def _send_tokens(module: nn.Module, ranks: DeviceMesh, tensor: DeviceMesh) -> None:
    """Keep this rank's experts of a module, and let its forward pass exchange tokens."""
    from transformers.distributed.expert_parallel import AllToAllEP

    own = _Own(module, ranks.size())
    for name, weight in list(module.named_parameters()):
        if weight.shape[0] % ranks.size():
            raise UserError(f"layout ep {ranks.size()} does not divide {weight.shape[0]} experts")
        # every rank has the weights: nothing is sent
        part = distribute_tensor(weight.data, ranks, [Shard(0)], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(part, requires_grad=weight.requires_grad))
    exchange: Any = AllToAllEP(own, ranks, tensor)
    module.forward = exchange


class _Own(nn.Module):
    """The experts of this rank, by their own class, which knows no DTensors."""

    num_experts: int

    def __init__(self, module: nn.Module, ranks: int) -> None:
        super().__init__()
        plain: Any = deepcopy(module).to("meta")
        self.num_experts = plain.num_experts = plain.num_experts // ranks
        self._plain, self._weights = plain, module.named_parameters

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Outputs for tokens of all ranks, [tokens, width]."""
        weights = {name: local_part(weight) for name, weight in self._weights()}
        out: torch.Tensor = functional_call(self._plain, weights, inputs)
        return out
