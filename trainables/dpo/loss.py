"""The losses of preferences: each is that of `trl` on the same batch.

sigmoid: DPO (Rafailov et al. 2023, arXiv:2305.18290, equation 7). ipo: Azar et al. 2023,
arXiv:2310.12036, equation 17, of means over the answers' tokens. orpo: Hong et al. 2024,
arXiv:2403.07691, equation 6. simpo: Meng et al. 2024, arXiv:2405.14734, equation 6. kto: Ethayarajh
et al. 2024, arXiv:2402.01306, equation 8.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.objective import next_token_logits
from trainables.dpo.config import DPOConfig

LIKELIEST = -1e-7
"""Log-probability per token that has finite log-odds in float32."""


class PreferenceLoss(TrainedLoss[DPOConfig]):
    """Mean loss of pairs, with kto of answers: what data parallelism wraps."""

    def forward(
        self, tokens: torch.Tensor, counted: torch.Tensor, *others: torch.Tensor | None
    ) -> torch.Tensor:
        """A scalar; arguments as of `score_answers`."""
        return score_answers(self.model, self.settings, tokens, counted, *others)[-1].mean()


def score_answers(
    model: nn.Module,
    config: DPOConfig,
    tokens: torch.Tensor,
    counted: torch.Tensor,
    reference: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    desired: torch.Tensor | None = None,
    divergence: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probability per token and reward of each answer, and the losses.

    Args:
        model: on its device.
        config: of the trial.
        tokens: of answers behind their questions, int64 [answers, length + 1]; of pairs, the
            preferred and the rejected answer in turn.
        counted: whether the next token is of an answer, bool [answers, length].
        reference: log-probability of each answer by the first model, if it counts, [answers].
        weights: orpo: of the next tokens in the likelihood of texts, [answers, length].
        desired: kto: whether each answer is desirable, bool [answers].
        divergence: kto: of the model from the first one, nats, a scalar.
    """
    each = _token_log_probs(model, tokens, config)
    found, lengths = (each * counted).sum(dim=1), counted.sum(dim=1)
    gains = found / lengths if reference is None else found - reference
    texts = None if weights is None else -(each * weights).sum(dim=1)[::2]
    losses = preference_losses(config, gains, lengths, texts, desired, divergence)
    return found / lengths, config.beta * gains, losses


def answer_log_probs(
    model: nn.Module, tokens: torch.Tensor, counted: torch.Tensor, config: DPOConfig
) -> torch.Tensor:
    """Log-probability of each answer, nats, float32 [answers]."""
    return (_token_log_probs(model, tokens, config) * counted).sum(dim=1)


def _token_log_probs(model: nn.Module, tokens: torch.Tensor, config: DPOConfig) -> torch.Tensor:
    logits = next_token_logits(model, tokens[:, :-1], config)
    targets = tokens[:, 1:]
    return -F.cross_entropy(logits, targets.reshape(-1), reduction="none").view(targets.shape)


def preference_losses(
    config: DPOConfig,
    gains: torch.Tensor,
    lengths: torch.Tensor,
    texts: torch.Tensor | None = None,
    desired: torch.Tensor | None = None,
    divergence: torch.Tensor | None = None,
) -> torch.Tensor:
    """The loss of each pair, [pairs], or with kto of each answer, [answers].

    Args:
        config: of the trial.
        gains: log-probability of each answer minus that by the first model, or, where that does not
            count, per token, [answers].
        lengths: tokens of each answer, [answers].
        texts: orpo: negative log-likelihood of each preferred text, times its weight, [pairs].
        desired, divergence: as of `score_answers`.
    """
    beta, smoothing = config.beta, config.label_smoothing
    if config.loss == "kto":
        assert desired is not None
        assert divergence is not None
        above = beta * (gains - divergence)
        good = config.desirable_weight * torch.sigmoid(-above)
        return torch.where(desired, good, config.undesirable_weight * torch.sigmoid(above))
    if config.loss == "ipo":
        gains = gains / lengths
    if config.loss == "orpo":
        gains = gains.clamp(max=LIKELIEST)
        gains = gains - torch.log(-torch.expm1(gains))  # log-odds
    margins = gains[::2] - gains[1::2]
    if texts is not None:
        return texts - beta * F.logsigmoid(margins)
    if config.loss == "ipo":
        return (margins - 1 / (2 * beta)) ** 2
    margins = beta * margins - (config.gamma if config.loss == "simpo" else 0.0)
    return -F.logsigmoid(margins) * (1 - smoothing) - F.logsigmoid(-margins) * smoothing
