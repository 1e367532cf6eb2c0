"""A mixture of experts in place of the MLP of each block, as in Mixtral (Jiang et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import torch
    from torch import nn


class ExpertsConfig(BaseModel):
    """A mixture of experts in place of each MLP: a router picks those that compute a token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(8, ge=2, description="experts of a block, each of intermediate_size")
    per_token: int = Field(2, gt=0, description="experts that compute a token")
    balance: float = Field(
        0.01,
        ge=0,
        description="weight of the loss that balances their use (Fedus et al. 2022); it is trained"
        " on, and is no part of train_loss and eval_loss",
    )

    @model_validator(mode="after")
    def _enough(self) -> ExpertsConfig:
        if self.per_token > self.count:
            raise ValueError(f"per_token must be <= count, {self.count}, got {self.per_token}")
        return self

    def shape(self) -> dict[str, Any]:
        """Arguments of `MixtralConfig` that a Llama lacks, and Llama's rotary base."""
        return {
            "num_local_experts": self.count,
            "num_experts_per_tok": self.per_token,
            "router_aux_loss_coef": self.balance,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        }

    def mlp_parameters(self, width: int, mlp: int) -> int:
        """Weights in place of an MLP's.

        Args:
            width: of the residual stream.
            mlp: weights of one expert.
        """
        return self.count * (mlp + width)


@contextmanager
def router_logits(model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """In this block, collect what the routers of a model give, [tokens, experts] of each block."""
    from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter

    found: list[torch.Tensor] = []
    routers = [module for module in model.modules() if isinstance(module, MixtralTopKRouter)]
    hooks = [
        router.register_forward_hook(lambda *args: found.append(args[2][0])) for router in routers
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def balance_gradient(
    logits: Sequence[torch.Tensor], experts: ExpertsConfig, *, several_ranks: bool = False
) -> torch.Tensor:
    """A scalar 0 with the gradient of the loss that balances the use of the experts.

    The loss is that of `transformers`: of all blocks together, as of one with their tokens.

    Args:
        logits: of the router of each block, [tokens, experts].
        experts: their number, and the weight of that loss.
        several_ranks: whether the batch is that of all ranks of the process group. They call this
            together, and the mean of their losses is that of the batch.
    """
    import torch.distributed as dist

    shares = [one.float().softmax(dim=-1) for one in logits]
    told = expert_counts(shares, experts)
    rows = sum(len(one) for one in shares)
    if several_ranks:
        dist.all_reduce(told)
    fractions = told[:-1] / told[-1]
    mean = sum(one.sum(dim=0) for one in shares) / rows
    loss: torch.Tensor = experts.balance * experts.count * (fractions * mean).sum()
    return loss - loss.detach()


def expert_counts(shares: Sequence[torch.Tensor], experts: ExpertsConfig) -> torch.Tensor:
    """How many tokens pick each expert, and their number, float32 [experts + 1].

    Args:
        shares: probabilities of the experts in each block, [tokens, experts].
        experts: their number.
    """
    import torch
    from torch.nn import functional as F

    with torch.no_grad():
        chosen = [one.topk(experts.per_token, dim=-1).indices for one in shares]
        counts = sum(F.one_hot(one, experts.count).sum(dim=(0, 1)) for one in chosen)
        rows = sum(len(one) for one in shares)
        return F.pad(torch.as_tensor(counts), (0, 1), value=rows).float()
