"""What a student learns: the tokens of a text, and what its teacher expects in their place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import nn

from search_spaces.errors import UserError
from trainables.causal_lm.task import TextTask
from trainables.causal_lm.trained_model import trained_once
from trainables.client import Rows
from trainables.data.tokenizer import pretrained_encoder
from trainables.distill.config import DistillConfig
from trainables.distill.files import tokens_problem
from trainables.distill.loss import DistillationLoss
from trainables.distill.outputs import Outputs, compute_outputs
from trainables.training.task import Inputs
from trainables.worker import Worker


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
