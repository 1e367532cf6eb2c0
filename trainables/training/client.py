"""A task as federated clients train it, and their optimizer steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Client, Rows
from trainables.training.optimizers import LR_SCALE
from trainables.training.task import Task
from trainables.worker import Worker


class TaskClient:
    """A client whose examples are samples of a task's train split; see `Client`."""

    def __init__(self, task: Task) -> None:
        config = task.config
        if getattr(config, "lora", None) is not None:
            raise UserError("client.lora: clients train all weights; remove it")
        if getattr(config, "dtype", None) == "float16":
            raise UserError("dtype float16: its loss is not scaled here; use bfloat16 or float32")
        self._task, self.size, self.batch_size = task, task.size, int(config.batch_size)
        self.grad_clip: float | None = getattr(config, "grad_clip", None)
        self.groups, self.model, self.optimizer = task.groups, task.new_model, task.optimizer

    def learning_rate(self, step: int, total: int) -> float:
        """That of the task's schedule over all rounds."""
        factor = self._task.lr_factor(total)
        peak: float = self._task.config.learning_rate
        return peak if factor is None else peak * factor(step)

    def loss(self, model: nn.Module, rows: Rows, device: torch.device) -> torch.Tensor:
        """Mean loss of these samples."""
        return self._task.local_loss(model, self._task.batch(rows, device))

    def evaluate(self, model: nn.Module, worker: Worker) -> dict[str, float]:
        """The task's metrics on the selection split."""
        return self._task.evaluate(model, Split.SELECTION, worker)

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write a checkpoint's model files."""
        self._task.save(model, folder)

    def load(self, model: nn.Module, folder: Path) -> None:
        """Read weights that `save` wrote."""
        model.load_state_dict(self._task.load_model(folder).state_dict())


def train_step(
    client: Client,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    step: int,
    total: int,
    device: torch.device,
    pull: Callable[[], torch.Tensor | float] = lambda: 0.0,
) -> torch.Tensor:
    """One optimizer step of a client; returns the mean loss, detached.

    Args:
        client: whose examples are trained on.
        model: on the device, in training mode.
        optimizer: of the client.
        rows: of the train split.
        step: from 0, of `total`.
        total: of all rounds together.
        device: of the model.
        pull: a term to add to the loss.
    """
    for group in optimizer.param_groups:
        group["lr"] = client.learning_rate(step, total) * group.get(LR_SCALE, 1.0)
    optimizer.zero_grad()
    loss = client.loss(model, rows, device)
    (loss + pull()).backward()  # type: ignore[no-untyped-call]
    if client.grad_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), client.grad_clip)
    optimizer.step()
    return loss.detach()
