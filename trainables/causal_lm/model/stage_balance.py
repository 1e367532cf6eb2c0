"""The loss that balances experts, where stages compute the parts of a batch one after another.

Its gradient at a token depends on how often the whole batch picks each expert, in all blocks. So
the stages count first, and only then compute gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from trainables.causal_lm.experts import ExpertsConfig, expert_counts
from trainables.parallel.mesh import Mesh


class StageBalance:
    """Counts the tokens of each expert on all ranks, and adds the gradient of their balance."""

    def __init__(self, experts: ExpertsConfig, mesh: Mesh) -> None:
        """Begin without a batch.

        Args:
            experts: their number, and the weight of the loss.
            mesh: of this rank.
        """
        self._experts = experts
        self._copies = mesh.dp_size * mesh.layout.tp  # ranks that count the tokens of a block
        self._left = 0
        self._told: list[torch.Tensor] = []
        self._sum: dist.Work | None = None

    def start(self, passes: int) -> None:
        """Begin a batch, of which the stages of this rank have so many forward passes."""
        self._left = passes
        self._told.clear()

    def attach(self, hidden: torch.Tensor, logits: Sequence[torch.Tensor]) -> torch.Tensor:
        """The activations, whose backward pass adds the gradient of the balance.

        Args:
            hidden: that the stage returns.
            logits: of the router of each of its blocks, [tokens, experts].
        """
        shares = [one.float().softmax(dim=-1) for one in logits]
        if self._left:
            self._told.append(expert_counts(shares, self._experts))
            self._left -= 1
            if not self._left:
                self._told = [torch.stack(self._told).sum(dim=0)]
                # no waiting here: other stages still need what this one sends next
                self._sum = dist.all_reduce(self._told[0], async_op=True)
        if not torch.is_grad_enabled():
            return hidden
        total = torch.stack([one.sum(dim=0) for one in shares]).sum(dim=0)
        attached: torch.Tensor = _Attached.apply(hidden, total, self)  # type: ignore[no-untyped-call]
        return attached

    def gradient(self) -> torch.Tensor:
        """Of the loss by the sum of the shares of each expert, [experts]; waits for all ranks."""
        if self._sum is not None:
            self._sum.wait()
            self._sum = None
        told, experts = self._told[0], self._experts
        fractions, rows = told[:-1] / told[-1], told[-1] / self._copies
        return experts.balance * experts.count * fractions / rows


class _Attached(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, total: torch.Tensor, balance: StageBalance
    ) -> torch.Tensor:
        ctx.balance = balance
        return hidden.clone()  # torch's zero_bubble takes no view

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return grads[0], ctx.balance.gradient(), None
