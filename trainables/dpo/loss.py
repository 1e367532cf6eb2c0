"""The loss of DPO (Rafailov et al. 2023, arXiv:2305.18290, equation 7), and that of IPO."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.objective import next_token_logits
from trainables.dpo.config import DPOConfig


class PreferenceLoss(TrainedLoss[DPOConfig]):
    """Mean loss of pairs: what data parallelism wraps."""

    def forward(
        self, tokens: torch.Tensor, counted: torch.Tensor, reference: torch.Tensor
    ) -> torch.Tensor:
        """A scalar.

        Args:
            tokens: of the preferred and the rejected answer of each pair in turn, int64
                [2 * pairs, length + 1].
            counted: whether the next token is of an answer, bool [2 * pairs, length].
            reference: log-probability of each answer by the first model, [2 * pairs].
        """
        found = answer_log_probs(self.model, tokens, counted, self.settings)
        return preference_losses(found - reference, counted.sum(dim=1), self.settings).mean()


def answer_log_probs(
    model: nn.Module, tokens: torch.Tensor, counted: torch.Tensor, config: DPOConfig
) -> torch.Tensor:
    """Log-probability of each answer, nats, float32 [sequences]; arguments as of the loss."""
    logits = next_token_logits(model, tokens[:, :-1], config)
    losses = F.cross_entropy(logits, tokens[:, 1:].reshape(-1), reduction="none")
    return -(losses.reshape(counted.shape) * counted).sum(dim=1)


def preference_losses(
    changes: torch.Tensor, lengths: torch.Tensor, config: DPOConfig
) -> torch.Tensor:
    """The loss of each pair, float32 [pairs].

    `ipo` is of the means over the answers' tokens (Azar et al. 2023, arXiv:2310.12036, equation 17;
    the means are those of `trl`).

    Args:
        changes: log-probability of each answer minus that by the first model, [2 * pairs].
        lengths: tokens of each answer, [2 * pairs].
        config: `loss`, `beta` and `label_smoothing`.
    """
    if config.loss == "ipo":
        changes = changes / lengths
        return (changes[::2] - changes[1::2] - 1 / (2 * config.beta)) ** 2
    margins, smoothing = config.beta * (changes[::2] - changes[1::2]), config.label_smoothing
    return -F.logsigmoid(margins) * (1 - smoothing) - F.logsigmoid(-margins) * smoothing
