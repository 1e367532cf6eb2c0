"""Training and evaluation of a digits network: the shortest complete trainable."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file, save_model
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.checkpointing.tensor_file import write_tensors
from trainables.client import Rows
from trainables.digits.config import DigitsConfig
from trainables.digits.network import network
from trainables.training.data_sampler import shares
from trainables.training.task import Inputs, Task

if TYPE_CHECKING:
    from results.export.exportable import Exportable
    from trainables.worker import Worker

WEIGHTS = "model.safetensors"
EVAL_BATCH = 128
SHARE = 0.2
"""Fraction of the data in the selection split, and in the test split."""

Images = tuple[torch.Tensor, torch.Tensor]
"""Pixels [images, 64] float32 in 0..1, and labels [images] int64."""


def _load(model: nn.Module, folder: Path) -> None:
    """Read the weights of a folder, in one file or several."""
    parts = [load_file(file) for file in folder.glob("model*.safetensors")]
    model.load_state_dict({name: tensor for part in parts for name, tensor in part.items()})


@dataclass
class DigitsTask(Task):
    """Classify images of digits."""

    config: DigitsConfig
    mean_buffers = True

    @classmethod
    def open(
        cls, config: DigitsConfig, cache: Path, key: str | None = None, worker: Worker | None = None
    ) -> DigitsTask:
        """The data is part of scikit-learn."""
        return cls(config)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all images and labels."""
        return _fingerprint()

    @property
    def size(self) -> int:
        """Images of the train split."""
        return len(images_of(Split.TRAIN)[1])

    def batch(self, rows: Rows, device: torch.device) -> Images:
        """Pixels and labels."""
        pixels, labels = images_of(Split.TRAIN)
        at = torch.from_numpy(rows)
        return pixels[at].to(device), labels[at].to(device)

    def loss(self, placed: nn.Module, inputs: Inputs) -> torch.Tensor:
        """Mean cross-entropy, in nats."""
        pixels, labels = inputs
        return F.cross_entropy(placed(pixels), labels)

    def groups(self, by: str) -> Rows:
        """The label of each image; images have no source."""
        if by != "label":
            raise UserError("digits: its images have labels and no source; set by: label")
        labels: Rows = images_of(Split.TRAIN)[1].numpy()
        return labels

    def new_model(self) -> nn.Module:
        """The network with the weights of step 0."""
        config = self.config
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.init_seed)
            return network(
                config.hidden_units, config.num_layers, config.dropout, config.batch_norm
            )

    def load_model(self, weights: Path) -> nn.Module:
        """The network with the weights of a folder, in one file or several."""
        model = self.new_model()
        _load(model, weights)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW or SGD, as configured."""
        config = self.config
        common: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
        if config.optimizer == "sgd":
            return torch.optim.SGD(model.parameters(), momentum=config.momentum, **common)
        return torch.optim.AdamW(model.parameters(), betas=(config.momentum, 0.999), **common)

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """`accuracy` (0 to 1) and `loss` (nats per image)."""
        device = next(model.parameters()).device
        rank, world_size = (worker.rank, worker.world_size) if worker else (0, 1)
        images, labels = images_of(split)
        sums = {"correct": 0.0, "loss": 0.0, "count": 0.0}
        model.eval()
        with torch.inference_mode():
            for part in shares(len(labels), EVAL_BATCH, rank, world_size):
                logits, target = model(images[part].to(device)), labels[part].to(device)
                sums["correct"] += float((logits.argmax(1) == target).sum())
                sums["loss"] += float(F.cross_entropy(logits, target, reduction="sum"))
                sums["count"] += len(target)
        model.train()
        if worker is not None:
            sums = worker.sum(sums)
        return {"accuracy": sums["correct"] / sums["count"], "loss": sums["loss"] / sums["count"]}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """`accuracy` (0 or 1) and `loss` (nats) of each image of a split."""
        device = next(model.parameters()).device
        images, labels = (tensor.to(device) for tensor in images_of(split))
        with torch.inference_mode():
            logits = model(images)
            losses = F.cross_entropy(logits, labels, reduction="none")
        correct = (logits.argmax(1) == labels).double()
        return {"accuracy": correct.tolist(), "loss": losses.double().tolist()}

    def save(
        self, model: nn.Module, folder: Path, weights: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write `model.safetensors`."""
        if weights is None:
            save_model(model, str(folder / WEIGHTS))
        else:
            write_tensors(folder / WEIGHTS, weights)

    def recalibrate(self, model: nn.Module, weights: Path) -> None:
        """Recompute BatchNorm's statistics over the train split."""
        if not self.config.batch_norm:
            return
        model.cpu()
        pixels = images_of(Split.TRAIN)[0]  # in batches of equal sizes, whose mean is taken
        update_bn(pixels.tensor_split(math.ceil(len(pixels) / EVAL_BATCH)), model)
        stored = load_file(weights / WEIGHTS)  # replaces the statistics only, in their dtype
        stored |= {name: value.to(stored[name].dtype) for name, value in model.named_buffers()}
        save_file(stored, weights / WEIGHTS)

    def exportable(self, weights: Path) -> Exportable:
        """Pixels [images, 64] to logits [images, 10], verified on images of the selection split."""
        from results.export.exportable import Exportable

        images, _ = images_of(Split.SELECTION)
        examples = (images[:4], images[:1], images[4:37])
        model = self.load_model(weights).eval()
        return Exportable(model, "pixels", "logits", examples, classes=True, largest=1.0)

    def export_hf(self, weights: Path, target: Path) -> None:
        """Write the network and its code, which `transformers` runs."""
        from results.export.quiet import quiet_transformers
        from trainables.digits.modeling_digits import (
            DigitsForImageClassification,
            DigitsModelConfig,
        )

        config_class: Any = DigitsModelConfig
        model_class: Any = DigitsForImageClassification
        config_class.register_for_auto_class()
        model_class.register_for_auto_class("AutoModelForImageClassification")
        config = self.config
        model = model_class(config_class(config.hidden_units, config.num_layers, config.batch_norm))
        _load(model.layers, weights)
        with quiet_transformers():
            model.save_pretrained(target)


@cache
def images_of(split: Split) -> Images:
    """A split of the data: stratified by label, the same on every machine."""
    pixels, labels = load_digits(return_X_y=True)
    rest, test, y_rest, y_test = train_test_split(
        pixels, labels, test_size=SHARE, random_state=0, stratify=labels
    )
    fit, select, y_fit, y_select = train_test_split(
        rest, y_rest, test_size=SHARE / (1 - SHARE), random_state=0, stratify=y_rest
    )
    x, y = {
        Split.TRAIN: (fit, y_fit),
        Split.SELECTION: (select, y_select),
        Split.TEST: (test, y_test),
    }[split]
    return torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)


@cache
def _fingerprint() -> str:
    """SHA-256 of all images and labels, in order."""
    digest = hashlib.sha256()
    for split in Split:
        for part in images_of(split):
            digest.update(part.numpy().tobytes())
    return digest.hexdigest()
