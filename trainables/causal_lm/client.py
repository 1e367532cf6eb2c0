"""A federated client that trains a language model."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.loop import lr_schedule, optimizer_of
from trainables.causal_lm.model import load_model, new_model, save_model
from trainables.causal_lm.task import DATA_KEY, TextTask, eval_loss, evaluated_rows
from trainables.client import Client, Rows
from trainables.worker import Worker


def client(config: CausalLMConfig, cache: Path) -> Client:
    """A client whose examples are sequences of the train split.

    Raises:
        UserError: the configuration has an adapter, or two learning rates.
    """
    if config.lora is not None:
        raise UserError("client.lora: clients train all weights; remove it")
    if config.adamw_learning_rate is not None:
        raise UserError("client.adamw_learning_rate: clients have one learning rate; remove it")
    return CausalLMClient(config, cache)


class CausalLMClient:
    """A client whose examples are sequences of the train split."""

    def __init__(self, config: CausalLMConfig, cache: Path) -> None:
        self._config, self._task = config, TextTask.open(config, cache)
        self.dataset = self._task.dataset
        self.size, self.batch_size = self._task.size, config.batch_size
        self.grad_clip = config.grad_clip

    def groups(self, by: str) -> Rows:
        """The source file in which each sequence begins."""
        if by != "source":
            raise UserError("causal_lm: its text has sources and no labels; set by: source")
        return self.dataset.sources()

    def model(self) -> nn.Module:
        """The model at step 0, pretrained or random."""
        return new_model(self._config, self.dataset)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer."""
        return optimizer_of(model, self._config)

    def learning_rate(self, step: int, total: int) -> float:
        """Warmup and cosine decay over all rounds."""
        whole = self._config.model_copy(update={"max_steps": total})
        return self._config.learning_rate * lr_schedule(whole)(step)

    def loss(self, model: nn.Module, rows: Rows, device: torch.device) -> torch.Tensor:
        """Mean loss of these sequences, nats per token."""
        loss: torch.Tensor = self._task.loss(model)(*self._task.batch(rows, device))
        return loss

    def evaluate(self, model: nn.Module, worker: Worker) -> dict[str, float]:
        """`eval_loss` on the selection split, nats per token."""
        rows = evaluated_rows(self.dataset, Split.SELECTION, self._config)
        return {"eval_loss": eval_loss(model, rows, self._config, worker)}

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write a checkpoint's model files."""
        save_model(model, self._config, self.dataset, folder)
        (folder / DATA_KEY).write_text(json.dumps({"key": self.dataset.key}))

    def load(self, model: nn.Module, folder: Path) -> None:
        """Read weights that `save` wrote."""
        model.load_state_dict(load_model(self._config, self.dataset, folder).state_dict())
