"""What a student learns: the tokens of a text, and what its teacher expects in their place.

The loss is that of Hinton, Vinyals and Dean 2015 (arXiv:1503.02531, section 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import nn
from torch.nn import functional as F

from search_spaces.errors import UserError
from trainables.causal_lm.model.compilation import TrainedLoss
from trainables.causal_lm.model.objective import training_logits
from trainables.causal_lm.task import TextTask
from trainables.causal_lm.trained_model import trained_once
from trainables.client import Rows
from trainables.data.tokenizer import pretrained_encoder
from trainables.distill.config import DistillConfig
from trainables.distill.outputs import Outputs, compute_outputs
from trainables.training.start_model import tokens_problem
from trainables.training.task import Inputs
from trainables.worker import Worker

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
    teacher = _teacher_log_probs(log_probs, temperature, others)
    student = _student_log_probs(logits / temperature, ids, others)
    divergence = (teacher.exp() * (teacher - student)).sum(dim=1).mean()
    text = F.cross_entropy(logits, targets)
    return alpha * temperature**2 * divergence + (1 - alpha) * text


def _teacher_log_probs(log_probs: torch.Tensor, temperature: float, others: int) -> torch.Tensor:
    """Log-probabilities of the kept tokens, and of the others together, [tokens, top_k + 1].

    At a temperature other than 1 the others count as equally probable: only their sum is known.
    """
    kept = log_probs / temperature
    if not others:
        return kept.log_softmax(dim=1)
    rest = (1 - log_probs.exp().sum(dim=1, keepdim=True)).clamp(min=LEAST)
    together = (rest / others).log() / temperature + math.log(others)
    return torch.cat([kept, together], dim=1).log_softmax(dim=1)


def _student_log_probs(scores: torch.Tensor, ids: torch.Tensor, others: int) -> torch.Tensor:
    """As `_teacher_log_probs`, of all scores of the vocabulary."""
    kept = scores.gather(1, ids)
    if not others:
        return kept.log_softmax(dim=1)
    together = scores.scatter(1, ids, -torch.inf).logsumexp(dim=1, keepdim=True)
    return torch.cat([kept, together], dim=1).log_softmax(dim=1)


@dataclass
class DistillTask(TextTask):
    """Predict every next token of texts as the teacher does; evaluation needs no teacher."""

    config: DistillConfig
    outputs: Outputs | None = None

    @classmethod
    def open(  # type: ignore[override]
        cls,
        config: DistillConfig,
        cache: Path,
        key: str | None = None,
        worker: Worker | None = None,
    ) -> Self:
        """The task, for training with the outputs of the teacher on its text."""
        if worker is None:
            return super().open(config, cache, key)
        _check_tokenizer(config)
        task = super().open(config, cache, key)
        with worker.times.of("data"):
            teacher = _teacher(config, worker)
            task.outputs = compute_outputs(config, task.dataset, teacher, worker)
        return task

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """The inputs of `DistillationLoss`."""
        assert self.outputs is not None
        tokens, _, positions = super().batch(rows, device)
        return tokens, positions, *self.outputs.batch(rows, device)

    def objective(self, model: nn.Module) -> nn.Module:
        """The loss that a student is trained on."""
        return DistillationLoss(model, self.config)


def _teacher(config: DistillConfig, worker: Worker) -> Path:
    """The folder of the teacher, which is trained on the student's data if it must be."""
    settings = config.teacher_config
    if settings is None:
        return Path(str(config.teacher)).expanduser()
    return trained_once(settings, worker.cache, worker.device, worker.heartbeat)


def _check_tokenizer(config: DistillConfig) -> None:
    """Refuse a pretrained student with a tokenizer of its own.

    Raises:
        UserError: the teacher has another.
    """
    if config.model_name_or_path is None or not isinstance(config.teacher, str):
        return
    names = (config.teacher, config.model_name_or_path)
    teacher, student = (pretrained_encoder(name).tokenizer.get_vocab() for name in names)
    if problem := tokens_problem(teacher, student):
        raise UserError(f"teacher {config.teacher}: {problem}")
