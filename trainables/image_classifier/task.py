"""What an image classifier learns: augmented images, and the metrics of a split."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from results.export.exportable import Exportable
from results.trial_paths import DATA_KEY
from search_spaces.errors import UserError
from trainables.base import Split
from trainables.client import Rows
from trainables.data.images.dataset import Images, prepare
from trainables.image_classifier.augment import Draws, augment, blank, draw, mixup_indices
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import (
    WEIGHTS,
    ImageNetwork,
    image_losses,
    load_classifier,
    logits,
    new_classifier,
)
from trainables.image_classifier.modeling_resnet import SmallResNet, SmallResNetConfig
from trainables.image_classifier.stages import make_pipeline
from trainables.parallel.fsdp import blocks_of, free_gathered, shard
from trainables.training.data_sampler import shares, shares_in_step
from trainables.training.task import Inputs, Task
from trainables.worker import Worker

EVAL_BATCH = 128
"""Images per evaluation batch: fixed, so that metrics do not depend on `batch_size`."""
RECALIBRATED = 10_000
"""Images of the train split, spread evenly, from which BatchNorm's statistics are recomputed."""


@dataclass
class ImageTask(Task):
    """Classify images."""

    config: ImageClassifierConfig
    images: Images
    unit = "images"
    broadcast_buffers = False
    mean_buffers = True

    @classmethod
    def open(
        cls,
        config: ImageClassifierConfig,
        cache: Path,
        key: str | None = None,
        worker: Worker | None = None,
    ) -> ImageTask:
        """The task, with its images prepared."""
        alive = (worker.heartbeat,) if worker else ()
        content, _, folder = (key or "").partition(",")
        if folder and (cache / folder).is_dir():
            return cls(config, Images(cache / folder))
        task = cls(config, prepare(config.data, cache, *alive))
        if key and task.fingerprint != content:
            raise UserError("data: the images are not those on which the model was trained")
        return task

    def __post_init__(self) -> None:
        self._pixels = self.images.pixels(Split.TRAIN)
        self._labels = torch.from_numpy(self.images.labels(Split.TRAIN))
        self._inputs: Inputs = ()
        self._keep = 1.0

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the images."""
        return str(self.images.meta["content"])

    @property
    def size(self) -> int:
        """Images of the train split."""
        return len(self._labels)

    def updates(self, number: int, rows: Rows, model: nn.Module, worker: Worker) -> tuple[Rows]:
        """Augment and mix this rank's images, which `batch` numbers from 0."""
        config, seed, count = self.config, worker.seed, len(rows)
        first = worker.mesh.dp_rank * count
        share, classifier = slice(first, first + count), cast(ImageNetwork, model)
        draws = draw(config, seed, number, share)
        with worker.times.of("data"):
            pixels, labels = self._augmented(rows, draws, classifier, worker.device)
            others = None
            if config.mixup:
                rows = mixup_indices(self.size, config.batch_size, seed, number, share)
                other_pixels, others = self._augmented(rows, draws, classifier, worker.device)
                pixels = draws.keep * pixels + (1 - draws.keep) * other_pixels
        self._inputs, self._keep = (pixels, labels, others), draws.keep
        return (np.arange(count),)

    def _augmented(
        self, rows: Rows, draws: Draws, classifier: ImageNetwork, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Augmented and normalised images of the train split with their labels, on the device."""
        images, labels = torch.from_numpy(self._pixels[rows]), self._labels[rows]
        if device.type == "cuda":
            images, labels = images.pin_memory(), labels.pin_memory()
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        pixels = classifier.normalised(augment(images, draws, self.config))
        return blank(pixels, draws, self.config.cutout), labels

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """Pixels, labels, and with mixup the labels of the images' partners."""
        at = torch.from_numpy(rows).to(device)
        return tuple(None if tensor is None else tensor[at] for tensor in self._inputs)

    def loss(self, placed: nn.Module, inputs: Inputs) -> torch.Tensor:
        """Mean loss of the images, in nats."""
        pixels, labels, others = inputs
        scores = logits(placed, pixels, self.config)
        return image_losses(scores, labels, self.config, others, self._keep).mean()

    def stage_inputs(self, inputs: Inputs) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Pixels; labels and shares of the mixture."""
        pixels, labels, others = inputs
        more = {"targets": labels}
        if others is not None:
            more |= {"others": others, "keep": pixels.new_full((len(labels),), self._keep)}
        return pixels, more

    def new_model(self) -> ImageNetwork:
        """Pretrained, or random from `init_seed` alone."""
        return new_classifier(self.config, self.images)

    def load_model(self, weights: Path) -> ImageNetwork:
        """The model of a folder."""
        return load_classifier(self.config, self.images, weights)

    def network(self, model: nn.Module) -> nn.Module:
        """The `transformers` model."""
        return cast(ImageNetwork, model).model

    def place(self, model: nn.Module, worker: Worker) -> nn.Module:
        """The model, or this rank's part, on its device in the fastest memory format."""
        classifier, mesh = cast(ImageNetwork, model), worker.mesh
        if mesh.layout.pp > 1:
            make_pipeline(classifier, self.config, mesh)
        elif mesh.is_sharded:
            shard(classifier.model, blocks_of(classifier.model), mesh)
        classifier.to(worker.device).train()
        if worker.device.type == "cuda" and not mesh.is_sharded:
            classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return classifier.pipeline[0] if classifier.pipeline else classifier

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """SGD or AdamW, with weight decay for matrices and kernels, not for gains and biases."""
        config, trained = self.config, [p for p in model.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
        ]
        rate, momentum = config.learning_rate, config.momentum
        if config.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0)
        return torch.optim.AdamW(groups, lr=rate, betas=(momentum, config.beta2))

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """`accuracy` and `top5_accuracy` (0 to 1) and `loss` (nats per image)."""
        count = len(self.images.labels(split))
        model.eval()
        sums = {"accuracy": 0.0, "loss": 0.0, "top5_accuracy": 0.0}
        parts, counted = shares_in_step(count, EVAL_BATCH, worker)
        for index, part in enumerate(parts):
            for name, values in self._values(model, split, part).items():
                sums[name] += float(values.sum()) * (index < counted)
        model.train()
        if worker is not None:
            sums = worker.sum(sums)
        free_gathered(model)
        return {name: total / count for name, total in sums.items()}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of each image of a split."""
        slices = shares(len(self.images.labels(split)), EVAL_BATCH, 0, 1)
        parts = [self._values(model, split, part) for part in slices]
        return {name: torch.cat([p[name] for p in parts]).tolist() for name in parts[0]}

    @torch.no_grad()
    def _values(self, model: nn.Module, split: Split, part: slice) -> dict[str, torch.Tensor]:
        """Metrics of each image of a part of a split, float64 on the CPU."""
        pixels = _on(model, np.array(self.images.pixels(split)[part]))
        labels = torch.from_numpy(self.images.labels(split)[part]).to(pixels.device)
        scores = logits(model, pixels, self.config)
        best = scores.topk(min(5, scores.shape[1]), dim=1).indices == labels[:, None]
        values = {
            "accuracy": best[:, 0],
            "loss": F.cross_entropy(scores, labels, reduction="none"),
            "top5_accuracy": best.any(1),
        }
        return {name: value.cpu().double() for name, value in values.items()}

    def save(
        self, model: nn.Module, folder: Path, weights: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write weights, configuration, and the mean and deviation of pixels."""
        cast(ImageNetwork, model).save(folder, weights)
        self._save_key(folder)

    def save_description(self, model: nn.Module, folder: Path) -> None:
        """Write what `save` does, without the weights."""
        cast(ImageNetwork, model).save_description(folder)
        self._save_key(folder)

    def _save_key(self, folder: Path) -> None:
        key = f"{self.fingerprint},{self.images.folder.name}"
        (folder / DATA_KEY).write_text(json.dumps({"key": key}))

    def recalibrate(self, model: nn.Module, weights: Path) -> None:
        """Recompute BatchNorm's statistics over the train split, without augmentation."""
        picked = np.arange(self.size)
        if self.size > RECALIBRATED:
            picked = np.linspace(0, self.size - 1, RECALIBRATED).astype(np.int64)
        # of equal sizes: `update_bn` takes the mean over the batches
        batches = np.array_split(picked, math.ceil(len(picked) / EVAL_BATCH))
        update_bn((_on(model, self._pixels[batch]) for batch in batches), model)
        stored = load_file(weights / WEIGHTS)  # replaces the statistics only, in their dtype
        for name, value in self.network(model).named_buffers():
            if name in stored:
                stored[name] = value.to("cpu", stored[name].dtype)
        save_file(stored, weights / WEIGHTS, {"format": "pt"})

    def exportable(self, weights: Path) -> Exportable:
        """Normalised pixels [images, channels, height, width] to logits [images, classes].

        It is verified on images of the selection split.
        """
        model = self.load_model(weights).eval()
        pixels = model.normalised(torch.tensor(self.images.pixels(Split.SELECTION)[:40]))
        examples = (pixels[:4], pixels[:1], pixels[4:37])
        black_and_white = pixels.new_tensor([0, 255]).view(2, 1, 1, 1)
        names = self.images.classes
        return Exportable(
            model,
            "pixel_values",
            "logits",
            examples,
            classes=True,
            class_names=() if names == [*map(str, range(len(names)))] else tuple(names),
            largest=2 * float(model.normalised(black_and_white).abs().max()),  # resizing exceeds it
        )

    def export_hf(self, weights: Path, target: Path) -> None:
        """Write a folder that `transformers` loads; that of a ResNet contains the model's code."""
        classifier = self.load_model(weights)
        if isinstance(classifier.model, SmallResNet):
            config_class: Any = SmallResNetConfig
            model_class: Any = SmallResNet
            config_class.register_for_auto_class()
            model_class.register_for_auto_class("AutoModelForImageClassification")
        classifier.save(target)


def _on(model: nn.Module, images: Any) -> torch.Tensor:
    """Normalised pixels of uint8 images, on the model's device."""
    device = next(model.parameters()).device
    return cast(ImageNetwork, model).normalised(
        torch.from_numpy(images).to(device, non_blocking=True)
    )
