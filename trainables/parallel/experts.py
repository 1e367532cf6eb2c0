"""Expert parallelism: each rank has some experts of each block, and tokens travel to theirs."""

from __future__ import annotations

from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.func import functional_call

from search_spaces.errors import UserError
from trainables.parallel.fsdp import offload, precision
from trainables.parallel.mesh import Mesh
from trainables.parallel.sharded_state import local_part

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
