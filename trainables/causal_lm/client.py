"""Trains a language model without reports: as a federated client, or once for all trials."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model as save_weights
from torch import nn

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import load_model, new_model, save_model, save_tokenizer
from trainables.causal_lm.model.objective import place
from trainables.causal_lm.optimizer import lr_schedule, optimizer_of
from trainables.causal_lm.task import (
    DATA_KEY,
    Task,
    TextTask,
    eval_loss,
    evaluated_rows,
    open_task,
)
from trainables.client import Client, Rows
from trainables.common.data_sampler import Sampler
from trainables.data.shared_folder import publish
from trainables.worker import Worker

log = logging.getLogger(__name__)

VERSION = 1
"""Of the training in `trained_once`; raise it with any change of code that changes the model."""


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


def trained_once(
    config: CausalLMConfig, cache: Path, device: torch.device, alive: Callable[[], None]
) -> Path:
    """The folder of the model that a configuration trains, with its tokenizer.

    The first process trains it, always in the same way; the others wait for it.

    Args:
        config: of `max_steps` steps from `init_seed`, which also shuffles the data.
        cache: folder of prepared data, which trials share.
        device: of the training.
        alive: called every now and then.
    """
    task = open_task(config, cache)
    told = {"version": VERSION, "config": task.config.model_dump(exclude={"data"})}
    text = json.dumps({**told, "data": task.dataset.key}, sort_keys=True)
    folder = cache / f"model-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    publish(folder, lambda new: _train(task, new, device, alive), alive)
    return folder


def _train(task: Task, folder: Path, device: torch.device, alive: Callable[[], None]) -> None:
    config = task.config
    model: Any = place(new_model(config, task.dataset), device).train()
    optimizer, objective, rate = optimizer_of(model, config), task.loss(model), lr_schedule(config)
    sampler, loss = Sampler(task.size, config.batch_size, config.init_seed), 0.0
    for step in range(config.max_steps):
        alive()
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate(step)
        optimizer.zero_grad()
        value = objective(*task.batch(sampler.rows(step), device))
        value.backward()
        if config.grad_clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        loss = float(value.detach())
    log.info("model trained for %d steps, last loss %.3f: %s", config.max_steps, loss, folder)
    model.config.save_pretrained(folder)  # its weights, `save_pretrained` writes on rank 0 only
    save_weights(model, str(folder / "model.safetensors"), metadata={"format": "pt"})
    save_tokenizer(config, task.dataset, folder)
