"""A federated client that trains a digits network."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn import functional as F

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Client, Rows
from trainables.digits.config import DigitsConfig
from trainables.digits.loop import WEIGHTS, images_of, make_network, make_optimizer, score
from trainables.worker import Worker


def client(config: DigitsConfig, cache: Path) -> Client:
    """A client whose examples are images of the train split."""
    return DigitsClient(config)


class DigitsClient:
    """A client whose examples are images of the train split."""

    grad_clip: float | None = None

    def __init__(self, config: DigitsConfig) -> None:
        self._config = config
        self._train = images_of(Split.TRAIN)
        self.size, self.batch_size = len(self._train[1]), config.batch_size

    def groups(self, by: str) -> Rows:
        """The label of each image; images have no source."""
        if by != "label":
            raise UserError("digits: its images have labels and no source; set by: label")
        labels: Rows = self._train[1].numpy()
        return labels

    def model(self) -> nn.Module:
        """The network at step 0."""
        return make_network(self._config)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """A fresh optimizer, as configured."""
        return make_optimizer(model, self._config)

    def learning_rate(self, step: int, total: int) -> float:
        """Constant."""
        return self._config.learning_rate

    def loss(self, model: nn.Module, rows: Rows, device: torch.device) -> torch.Tensor:
        """Mean cross-entropy of these images, in nats."""
        images, labels = self._train
        picked = torch.from_numpy(rows)
        return F.cross_entropy(model(images[picked].to(device)), labels[picked].to(device))

    def evaluate(self, model: nn.Module, worker: Worker) -> dict[str, float]:
        """`accuracy` and `loss` on the selection split."""
        return score(model, Split.SELECTION, worker)

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write `model.safetensors`."""
        save_model(model, str(folder / WEIGHTS))

    def load(self, model: nn.Module, folder: Path) -> None:
        """Read weights that `save` wrote."""
        load_model(model, folder / WEIGHTS)
