"""The loss of a student (Hinton, Vinyals and Dean 2015, arXiv:1503.02531, section 2)."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.objective import training_logits
from trainables.distill.config import DistillConfig

LEAST = 1e-6
"""Probability of the other tokens; what float16 leaves of it is no more exact."""


class DistillationLoss(TrainedLoss[DistillConfig]):
    """Mean loss of a batch: what is compiled, and what data parallelism wraps."""

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None,
        ids: torch.Tensor,
        log_probs: torch.Tensor,
    ) -> torch.Tensor:
        """Nats per token, a scalar.

        Args:
            tokens: int64 [batch, length + 1].
            positions: as of `NextTokenLoss`.
            ids: the teacher's most probable next tokens, int64 [batch, length, top_k].
            log_probs: of them, float32 of the same shape.
        """
        config = self.settings
        logits, balance = training_logits(self.model, tokens[:, :-1], config, positions)
        loss = distillation_loss(
            logits,
            tokens[:, 1:].reshape(-1),
            ids.flatten(end_dim=1),
            log_probs.flatten(end_dim=1),
            config.alpha,
            config.temperature,
        )
        return loss + balance


def distillation_loss(
    logits: torch.Tensor,
    targets: torch.Tensor,
    ids: torch.Tensor,
    log_probs: torch.Tensor,
    alpha: float,
    temperature: float,
) -> torch.Tensor:
    """`alpha * T^2 * KL(teacher || student) + (1 - alpha) * cross-entropy`, in nats per token.

    Both distributions of the divergence are at temperature T, over the teacher's `top_k` tokens and
    one more class, all others together. The factor T^2 keeps the size of the gradient, as in the
    paper. Without the class of the others, the student would be taught that they never occur.

    Args:
        logits: of the student, float32 [tokens, vocabulary].
        targets: the tokens of the text, int64 [tokens].
        ids: the teacher's most probable tokens, int64 [tokens, top_k].
        log_probs: of them at temperature 1, float32 [tokens, top_k].
        alpha: weight of the divergence.
        temperature: T.
    """
    others = logits.shape[1] - ids.shape[1]
    teacher = _teacher(log_probs, temperature, others)
    student = _student(logits / temperature, ids, others)
    divergence = (teacher.exp() * (teacher - student)).sum(dim=1).mean()
    text = F.cross_entropy(logits, targets)
    return alpha * temperature**2 * divergence + (1 - alpha) * text


def _teacher(log_probs: torch.Tensor, temperature: float, others: int) -> torch.Tensor:
    """Log-probabilities of the kept tokens, and of the others together, [tokens, top_k + 1].

    At a temperature other than 1 the others count as equally probable: only their sum is known.
    """
    kept = log_probs / temperature
    if not others:
        return kept.log_softmax(dim=1)
    rest = (1 - log_probs.exp().sum(dim=1, keepdim=True)).clamp(min=LEAST)
    together = (rest / others).log() / temperature + math.log(others)
    return torch.cat([kept, together], dim=1).log_softmax(dim=1)


def _student(scores: torch.Tensor, ids: torch.Tensor, others: int) -> torch.Tensor:
    """As `_teacher`, of all scores of the vocabulary."""
    kept = scores.gather(1, ids)
    if not others:
        return kept.log_softmax(dim=1)
    together = scores.scatter(1, ids, -torch.inf).logsumexp(dim=1, keepdim=True)
    return torch.cat([kept, together], dim=1).log_softmax(dim=1)
