"""The losses of preferences: each is that of `trl` on the same batch.

sigmoid: DPO (Rafailov et al. 2023, arXiv:2305.18290, equation 7). ipo: Azar et al. 2023,
arXiv:2310.12036, equation 17, of means over the answers' tokens. orpo: Hong et al. 2024,
arXiv:2403.07691, equation 6. simpo: Meng et al. 2024, arXiv:2405.14734, equation 6. kto: Ethayarajh
et al. 2024, arXiv:2402.01306, equation 8.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.objective import next_token_logits
from trainables.dpo.config import DPOConfig

LIKELIEST = -1e-7
"""Log-probability per token that has finite log-odds in float32."""


class Answers(NamedTuple):
    """What a loss needs to know of answers.

    Attributes:
        log_probs: of each, nats, float32 [answers]; of pairs, the preferred and the rejected one in
            turn.
        gains: those minus the ones by the first model, if it counts, [answers].
        lengths: tokens of each, [answers].
        texts: orpo: negative log-likelihood of each with its question, times the weight, [answers].
        desired: kto: whether each is desirable, bool [answers].
        divergence: kto: of the model from the first one, nats, a scalar.
    """

    log_probs: torch.Tensor
    gains: torch.Tensor
    lengths: torch.Tensor
    texts: torch.Tensor | None = None
    desired: torch.Tensor | None = None
    divergence: torch.Tensor | None = None


class PreferenceLoss(TrainedLoss[DPOConfig]):
    """Mean loss of pairs, with kto of answers: what data parallelism wraps."""

    def forward(
        self, tokens: torch.Tensor, counted: torch.Tensor, *others: torch.Tensor | None
    ) -> torch.Tensor:
        """A scalar; arguments as of `score_answers`."""
        found = score_answers(self.model, self.settings, tokens, counted, *others)
        return preference_losses(found, self.settings).mean()


def score_answers(
    model: nn.Module,
    config: DPOConfig,
    tokens: torch.Tensor,
    counted: torch.Tensor,
    reference: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    desired: torch.Tensor | None = None,
    divergence: torch.Tensor | None = None,
) -> Answers:
    """The answers, by a model.

    Args:
        model: on its device.
        config: of the trial.
        tokens: of questions with answers, int64 [answers, length + 1].
        counted: whether the next token is of an answer, bool [answers, length].
        reference: log-probability of each answer by the first model, [answers].
        weights: of the next tokens in `texts`, [answers, length].
        desired, divergence: as of `Answers`.
    """
    each = _token_log_probs(model, tokens, config)
    found = (each * counted).sum(dim=1)
    gains = found if reference is None else found - reference
    texts = None if weights is None else -(each * weights).sum(dim=1)
    return Answers(found, gains, counted.sum(dim=1), texts, desired, divergence)


def answer_log_probs(
    model: nn.Module, tokens: torch.Tensor, counted: torch.Tensor, config: DPOConfig
) -> torch.Tensor:
    """Log-probability of each answer, nats, float32 [answers]."""
    return score_answers(model, config, tokens, counted).gains


def _token_log_probs(model: nn.Module, tokens: torch.Tensor, config: DPOConfig) -> torch.Tensor:
    logits = next_token_logits(model, tokens[:, :-1], config)
    targets = tokens[:, 1:]
    return -F.cross_entropy(logits, targets.reshape(-1), reduction="none").view(targets.shape)


def rewards_of(answers: Answers, config: DPOConfig) -> torch.Tensor:
    """The reward that a loss gives each answer, [answers]."""
    gains = answers.gains
    return config.beta * (gains if config.has_reference else gains / answers.lengths)


def preference_losses(answers: Answers, config: DPOConfig) -> torch.Tensor:
    """The loss of each pair, [pairs], or with kto of each answer, [answers]."""
    if config.loss == "kto":
        return _kto_losses(answers, config)
    beta, gains, smoothing = config.beta, answers.gains, config.label_smoothing
    if config.loss != "sigmoid":
        gains = gains / answers.lengths
    if config.loss == "orpo":
        assert answers.texts is not None
        gains = gains.clamp(max=LIKELIEST)
        odds = gains - torch.log(-torch.expm1(gains))
        return answers.texts[::2] - beta * F.logsigmoid(odds[::2] - odds[1::2])
    margins = gains[::2] - gains[1::2]
    if config.loss == "ipo":
        return (margins - 1 / (2 * beta)) ** 2
    margins = beta * margins - (config.gamma if config.loss == "simpo" else 0.0)
    return -F.logsigmoid(margins) * (1 - smoothing) - F.logsigmoid(-margins) * smoothing


def _kto_losses(answers: Answers, config: DPOConfig) -> torch.Tensor:
    assert answers.desired is not None
    assert answers.divergence is not None
    above = config.beta * (answers.gains - answers.divergence)
    good = config.desirable_weight * torch.sigmoid(-above)
    return torch.where(answers.desired, good, config.undesirable_weight * torch.sigmoid(above))
