"""What a trainable learns: data, model, loss and evaluation, for which the training loop asks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn

from results.trial_paths import DATA_KEY
from trainables.base import Split
from trainables.client import Rows
from trainables.training.schedules import schedule_of

if TYPE_CHECKING:
    from results.export.exportable import Exportable
    from trainables.checkpointing.saver import DeferredWrite
    from trainables.worker import Worker

Inputs = tuple[Any, ...]
"""Of a loss: tensors on the device of the model, or None."""


class Task(ABC):
    """The data, model and loss of a trial. The model is whole in all of its methods but `evaluate`.

    Attributes:
        config: hyperparameters, with `batch_size`, `micro_batch_size` and `communication`.
        unit: what `num_items` counts, for the metric of the throughput; None: it is not reported.
        broadcast_buffers: whether each forward pass begins with rank 0's buffers.
        mean_buffers: whether ranks average the buffers (statistics of BatchNorm) before a report.
        reports_norm: whether the norm of the gradient is a metric.
    """

    config: Any
    unit: ClassVar[str | None] = None
    broadcast_buffers: ClassVar[bool] = True
    mean_buffers: ClassVar[bool] = False
    reports_norm: ClassVar[bool] = False

    @classmethod
    def open(
        cls, config: Any, cache: Path, key: str | None = None, worker: Worker | None = None
    ) -> Self:
        """The task of a configuration, with its data prepared; see `open_task`."""
        raise NotImplementedError(f"{cls.__name__} has no open()")

    # The clock: steps, each of one batch or of an epoch of batches.

    @property
    def steps(self) -> int:
        """Of a whole trial: what `worker.report(step=)` counts; by default epochs."""
        return int(self.config.epochs)

    @property
    def report_every(self) -> int:
        """Steps from one report to the next."""
        return 1

    @property
    def batches(self) -> int:
        """Batches of a step; by default those of an epoch that are whole."""
        return max(1, self.size // int(self.config.batch_size))

    # Data of the train split.

    @property
    def fingerprint(self) -> str:
        """Digest of the data, hexadecimal."""
        raise NotImplementedError

    @property
    @abstractmethod
    def size(self) -> int:
        """Samples of the train split."""

    def updates(self, number: int, rows: Rows, model: nn.Module, worker: Worker) -> Sequence[Rows]:
        """Prepare a batch (from 0) of this rank's samples: the rows of each optimizer step."""
        return (rows,)

    @abstractmethod
    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """The inputs of the loss for rows of `updates`: by default samples of the train split."""

    @property
    def micro_batch_size(self) -> int | None:
        """Largest number of rows that are computed at once; None: all."""
        found: int | None = self.config.micro_batch_size
        return found

    def num_targets(self, rows: Rows) -> float:
        """Over how many the loss of these samples is a mean."""
        return len(rows)

    def num_items(self, rows: Rows) -> int:
        """How many of `unit` these samples have."""
        return len(rows)

    # Model and optimizer.

    def new_model(self) -> nn.Module:
        """The model at step 0, which the configuration determines."""
        raise NotImplementedError

    def load_model(self, weights: Path) -> nn.Module:
        """The model with the weights of a folder."""
        raise NotImplementedError

    def start(self) -> tuple[nn.Module, str]:
        """The model to train, and its lineage."""
        from trainables.training.checkpoint import weights_digest

        model = self.new_model()
        return model, weights_digest(self.network(model))

    def resume(self, checkpoint: Path) -> nn.Module:
        """The model to train on."""
        return self.load_model(checkpoint)

    def network(self, model: nn.Module) -> nn.Module:
        """The part of a model that checkpoints hold."""
        return model

    def to_device(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Move a model to a device of its own."""
        return model.to(device)

    def place(self, model: nn.Module, worker: Worker) -> nn.Module:
        """Move a model, or this rank's part, to its device; returns what data parallelism wraps."""
        return self.to_device(model, worker.device).train()

    def evaluated(self, model: nn.Module, placed: nn.Module) -> nn.Module:
        """What `evaluate` takes, of a model and of what `place` returned."""
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer of a model's trained parameters."""
        raise NotImplementedError

    def lr_factor(self, total: int) -> Callable[[int], float] | None:
        """Factor of the learning rate by the batches done, of so many; None: it is constant."""
        return schedule_of(self.config, total) if hasattr(self.config, "schedule") else None

    def loss(self, placed: nn.Module, inputs: Inputs) -> torch.Tensor:
        """Mean loss of a batch, a scalar; `placed` is of `place`, wrapped for data parallelism."""
        found: torch.Tensor = placed(*inputs)
        return found

    def local_loss(self, model: nn.Module, inputs: Inputs) -> torch.Tensor:
        """Mean loss of a batch by a whole model on its device, without other ranks."""
        return self.loss(model, inputs)

    def stage_inputs(self, inputs: Inputs) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The inputs of `Pipeline.backward`."""
        raise NotImplementedError

    @property
    def grad_clip(self) -> float | None:
        """Largest L2 norm of a gradient; None: it is neither clipped nor measured."""
        return getattr(self.config, "grad_clip", None)

    @property
    def ema_decay(self) -> float | None:
        """Decay per step of a moving average of the weights, which is evaluated; None: none."""
        return getattr(self.config, "ema_decay", None)

    def flops(self, model: nn.Module) -> float | None:
        """FLOPs of a training step for one of `unit`; None: unknown."""
        return None

    # Metrics.

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """Metrics of the training since the last call, beside the loss; of all or of this rank."""
        return {}

    @abstractmethod
    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Metrics of a model on a split. With a worker, the ranks share the samples.

        Args:
            model: on its device.
            split: which part of the data.
            worker: this rank; None: there are no others.
            answers: file for examples of what the model writes, if it does.
        """

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each sample of a split."""
        raise NotImplementedError

    # Files.

    def copy_model(self, model: nn.Module, folder: Path, worker: Worker) -> DeferredWrite:
        """Copy this rank's part of a checkpoint's model; returns the function that writes it."""
        from trainables.checkpointing.saver import in_parallel
        from trainables.checkpointing.training_state import copy_weights
        from trainables.training.checkpoint import copy_model

        if worker.mesh.is_sharded:
            part = copy_model(self.network(model), folder, worker)
            first = [lambda: self.save_description(model, folder)] if worker.rank == 0 else []
            return in_parallel(part, *first)
        if worker.rank:
            return lambda: None
        weights = copy_weights(self.network(model))
        return lambda: self.save(model, folder, weights)

    def save(
        self, model: nn.Module, folder: Path, weights: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write a model, or a copy of its weights, with all that `load_model` needs."""
        raise NotImplementedError

    def save_description(self, model: nn.Module, folder: Path) -> None:
        """Write what `save` does, without the weights."""
        raise NotImplementedError

    def recalibrate(self, model: nn.Module, weights: Path) -> None:  # noqa: B027
        """Recompute statistics that are not learned in `model.safetensors`; by default none."""

    def exportable(self, weights: Path) -> Exportable:
        """See `Trainable.exportable`."""
        raise NotImplementedError

    def export_hf(self, weights: Path, target: Path) -> None:
        """See `Trainable.export_hf`."""
        raise NotImplementedError

    def groups(self, by: str) -> Rows:
        """See `Client.groups`."""
        raise NotImplementedError


def open_task(
    config: Any, cache: Path, key: str | None = None, worker: Worker | None = None
) -> Task:
    """The task of a configuration, with its data prepared.

    Args:
        config: of a trial; its class names the task.
        cache: folder of prepared data.
        key: the key that the data must have; None: any.
        worker: the rank that trains; None: the model is only evaluated.

    Raises:
        UserError: the data cannot be prepared, or has another key.
    """
    module, _, name = config.task_class.partition(":")
    task: type[Task] = getattr(import_module(module), name)
    return task.open(config, cache, key, worker)


def task_of(config: Any, weights: Path, cache: Path) -> Task:
    """The task on which weights were trained, by the data's key in their folder if there is one."""
    known = weights / DATA_KEY
    return open_task(
        config, cache, json.loads(known.read_text())["key"] if known.exists() else None
    )
