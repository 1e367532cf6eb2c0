"""The interface of a trainable that federated clients can train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from torch import nn

    from trainables.worker import Worker

Rows: TypeAlias = "npt.NDArray[np.int64]"
"""Numbers of samples of a split, shape [samples]."""


class Client(Protocol):
    """A model, its training examples and the loss of some of them. Holds no training state.

    Attributes:
        size: number of examples in the train split.
        batch_size: examples per optimizer step of one client.
        grad_clip: largest L2 norm of a gradient; None: not clipped.
    """

    size: int
    batch_size: int
    grad_clip: float | None

    def groups(self, by: str) -> Rows:
        """Label or source of each example, int64 [size].

        Raises:
            UserError: the data has none of this kind.
        """

    def model(self) -> nn.Module:
        """The model at step 0."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer; its learning rate is set before each step."""

    def learning_rate(self, step: int, total: int) -> float:
        """Learning rate of a step (from 0) out of `total` in all rounds together."""

    def loss(self, model: nn.Module, rows: Rows, device: torch.device) -> torch.Tensor:
        """Mean loss over these examples of the train split."""

    def evaluate(self, model: nn.Module, worker: Worker) -> dict[str, float]:
        """Metrics on the selection split. The ranks share the work and get the same result."""

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write the model in the form of the trainable's own checkpoints."""

    def load(self, model: nn.Module, folder: Path) -> None:
        """Read weights that `save` wrote."""
