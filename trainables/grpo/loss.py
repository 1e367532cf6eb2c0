"""The loss of GRPO (Shao et al. 2024, arXiv:2402.03300) and of two changes of it.

`dapo` (Yu et al. 2025, arXiv:2503.14476) averages over the tokens of all completions and may clip
the ratio less from above; `dr_grpo` (Liu et al. 2025, arXiv:2503.20783) divides by a constant.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.fast_path import hidden_states, is_fast, output_weight
from trainables.causal_lm.model.objective import next_token_logits
from trainables.grpo.config import GRPOConfig
from trainables.parallel.fsdp import device_of
from trainables.training.cross_entropy import linear_cross_entropies

LEAST_SPREAD = 1e-4
"""Added to the standard deviation of a group."""
Parts = dict[str, torch.Tensor]


def advantages(rewards: torch.Tensor, scale: Literal["group", "none"]) -> torch.Tensor:
    """How much better each completion is than its group, [groups, group_size].

    Args:
        rewards: float32 of the same shape.
        scale: whether they are divided by the standard deviation of the group.
    """
    exact = rewards.double()  # equal rewards have exactly no spread
    centred = exact - exact.mean(dim=1, keepdim=True)
    if scale == "group":
        centred = centred / (exact.std(dim=1, keepdim=True) + LEAST_SPREAD)
    return centred.float()


def token_weights(
    loss: Literal["grpo", "dapo", "dr_grpo"],
    lengths: torch.Tensor,
    completions: int,
    tokens: float,
    most: int,
) -> torch.Tensor:
    """The weight of each completion's tokens in the sum that is the loss, float32 [completions].

    Args:
        loss: of the configuration.
        lengths: tokens of each completion of this rank, int64 [completions].
        completions: of all ranks.
        tokens: of them together.
        most: `max_new_tokens`.
    """
    if loss == "grpo":
        return 1 / (completions * lengths.float())
    per_token = 1 / tokens if loss == "dapo" else 1 / (completions * most)
    return torch.full_like(lengths, per_token, dtype=torch.float32)


def policy_loss(
    log_probs: torch.Tensor,
    old: torch.Tensor,
    reference: torch.Tensor | None,
    advantage: torch.Tensor,
    epsilon: float,
    epsilon_high: float,
    beta: float,
) -> tuple[torch.Tensor, Parts]:
    """The loss of each token, and what is reported of it, all of one shape.

    Args:
        log_probs: of the tokens by the model that is trained.
        old: by the model that sampled them.
        reference: by the first model; None with `beta` 0.
        advantage: of the completion.
        epsilon, epsilon_high: the ratio of probabilities is clipped to [1 - epsilon,
            1 + epsilon_high].
        beta: weight of the divergence from the reference, estimated by exp(d) - d - 1 with d the
            difference of the log-probabilities (Schulman 2020, "k3").
    """
    ratio = (log_probs - old).exp()
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon_high)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    is_clipped = (ratio * advantage) > (clipped * advantage)
    parts = {"clip_share": is_clipped.float()}
    if reference is not None:
        difference = reference - log_probs
        divergence = difference.exp() - difference - 1
        loss = loss + beta * divergence
        parts["kl"] = divergence.detach()
    return loss, parts


class PolicyLoss(TrainedLoss[GRPOConfig]):
    """The weighted sum of the tokens' losses: what data parallelism wraps."""

    def __init__(self, model: nn.Module, config: GRPOConfig) -> None:
        super().__init__(model, config)
        names = ("clip_share", "tokens", *(["kl"] if config.beta else []))
        self.seen = {name: torch.zeros((), device=device_of(model)) for name in names}
        """What is reported of the passes so far, as sums, and `tokens`, their number."""

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None,
        sources: torch.Tensor,
        targets: torch.Tensor,
        numbers: torch.Tensor,
        reference: torch.Tensor | None,
    ) -> torch.Tensor:
        """A scalar.

        Args:
            tokens, positions, sources, targets: as of `token_log_probs`.
            numbers: of each target its weight in the loss, its completion's advantage, and its
                log-probability in the sampling, float32 [3, targets]. Weight 0 is padding.
            reference: log-probabilities by the first model, or None.
        """
        config, (weights, advantage, old) = self.settings, numbers.unbind()
        found = token_log_probs(self.model, config, tokens, positions, sources, targets)
        high = config.epsilon if config.epsilon_high is None else config.epsilon_high
        each, parts = policy_loss(
            found, old, reference, advantage, config.epsilon, high, config.beta
        )
        counted = weights > 0
        parts = {**parts, "tokens": torch.ones_like(weights)}
        for name, part in parts.items():
            self.seen[name] = self.seen[name] + (part * counted).sum()
        return (each * weights).sum()


def token_log_probs(
    model: nn.Module,
    config: GRPOConfig,
    tokens: torch.Tensor,
    positions: torch.Tensor | None,
    sources: torch.Tensor,
    targets: torch.Tensor,
) -> torch.Tensor:
    """Log-probabilities of tokens at the temperature, float32 [targets].

    Args:
        model: of `transformers`.
        config: gives dtype and temperature.
        tokens: rows of questions with answers, int64 [rows, length].
        positions: as of `document_mask`, or None: a row is one text.
        sources: places in the flattened rows whose outputs are of the targets, int64 [targets].
        targets: the tokens that follow them, int64 [targets].
    """
    if is_fast(model):
        hidden = hidden_states(model, tokens, config, positions)[sources]
        return -linear_cross_entropies(hidden, output_weight(model), targets, config.temperature)
    logits = next_token_logits(model, tokens, config, positions)[sources] / config.temperature
    return -F.cross_entropy(logits, targets, reduction="none")
