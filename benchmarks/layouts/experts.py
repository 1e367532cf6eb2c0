"""A mixture of experts by hand: each rank has some, and tokens travel to theirs and back."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn import functional as F


def split_experts(model: nn.Module) -> set[nn.Parameter]:
    """Keep this rank's experts of a Mixtral, in place; returns their weights."""
    hf: Any = model
    mine: set[nn.Parameter] = set()
    for layer in hf.model.layers:
        layer.mlp.experts = Own(layer.mlp.experts)
        mine |= set(layer.mlp.experts.parameters())
    return mine


class Own(nn.Module):
    """The experts of this rank; its gradients are sums over the tokens of all ranks."""

    def __init__(self, experts: Any) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        self.count, self.size = experts.num_experts // size, size
        for name in ("gate_up_proj", "down_proj"):
            part = getattr(experts, name).detach().chunk(size)[rank].clone()
            weight: Any = nn.Parameter(part)
            weight.of_one_rank = True
            weight.register_hook(lambda grad: grad / size)  # the loss is a mean over the ranks
            self.register_parameter(name, weight)

    def forward(
        self, hidden: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """Outputs of the chosen experts, weighted by their shares: [tokens, width]."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        tokens = order // chosen.shape[1]
        sent = torch.bincount(flat, minlength=self.count * self.size)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        outgoing = sent.view(self.size, -1).sum(dim=1).tolist()
        incoming = got.view(self.size, -1).sum(dim=1).tolist()
        there = hidden.new_empty(sum(incoming), hidden.shape[1])
        there = all_to_all_single(there, hidden[tokens], incoming, outgoing)  # type: ignore[no-untyped-call]
        kinds = torch.arange(self.count).repeat(self.size).repeat_interleave(got)
        by_kind = kinds.argsort(stable=True)
        parts = there[by_kind].split(torch.bincount(kinds, minlength=self.count).tolist())
        done = [self._expert(number, part) for number, part in enumerate(parts)]
        results = torch.empty_like(there).index_copy(0, by_kind, torch.cat(done))
        back = torch.empty_like(hidden[tokens])
        back = all_to_all_single(back, results, outgoing, incoming)  # type: ignore[no-untyped-call]
        weighted = back * shares.flatten()[order, None]
        return torch.zeros_like(hidden).index_add(0, tokens, weighted)

    def _expert(self, number: int, tokens: torch.Tensor) -> torch.Tensor:
        weights: Any = self
        gate, up = F.linear(tokens, weights.gate_up_proj[number]).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, weights.down_proj[number])
