"""The trainable `digits` and its hyperparameters, readable without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from trainables.training.communication.config import METRIC_NAMES, DataParallelConfig
from trainables.training.trainable import TrainedByClients


class DigitsConfig(DataParallelConfig):
    """Hyperparameters of a multilayer perceptron on 8x8 images of digits."""

    task_class: ClassVar[str] = "trainables.digits.task:DigitsTask"

    hidden_units: int = Field(64, gt=0, description="units of each hidden layer")
    num_layers: int = Field(2, gt=0, description="hidden layers")
    dropout: float = Field(0.0, ge=0, lt=1, description="fraction of hidden units dropped")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="adam (AdamW) or sgd")
    learning_rate: float = Field(1e-3, gt=0, description="the optimizer's step size")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd; Adam's beta1")
    weight_decay: float = Field(0.0, ge=0, description="decay of the weights, per step and lr")
    batch_size: int = Field(
        64, gt=0, le=1024, description="images per optimizer step, of all workers together"
    )
    micro_batch_size: int | None = Field(
        None, gt=0, description="images that a worker computes at once; null: all of its share"
    )
    batch_norm: bool = Field(False, description="normalize the input of each ReLU over the batch")
    epochs: int = Field(10, gt=0, description="passes over the 1,077 images of the train split")
    init_seed: int = Field(
        0, ge=0, description="of the initial weights; models of one init_seed can be averaged"
    )

    def halve_micro_batch(self, workers: int) -> dict[str, int] | None:
        """None with BatchNorm: it normalizes over the batch, so that halves give other values."""
        return None if self.batch_norm else super().halve_micro_batch(workers)

    def validate_workers(self, workers: Sequence[int]) -> tuple[str, str] | None:
        """BatchNorm normalizes over one worker's part of the batch: it needs a fixed number."""
        if self.batch_norm and len(workers) > 1:
            rule = "normalizes over each worker's part of the batch, so resources.workers must be"
            return "batch_norm", f"{rule} one number, got true"
        return super().validate_workers(workers)

    @property
    def num_parameters(self) -> int:
        """Weights of the network."""
        hidden = (self.num_layers - 1) * (self.hidden_units + 1) * self.hidden_units
        norms = 2 * self.num_layers * self.hidden_units if self.batch_norm else 0
        return 65 * self.hidden_units + hidden + norms + 10 * (self.hidden_units + 1)


class Digits(TrainedByClients[DigitsConfig]):
    """Classifies images of digits. Reports once per epoch: `accuracy` (0 to 1), `loss` (nats)."""

    Config = DigitsConfig
    metric_names = ("accuracy", "loss", "train_loss", "samples_seen", *METRIC_NAMES)
    clock = "epoch"
    elastic = True
