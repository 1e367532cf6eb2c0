"""Evaluates image classifiers: metrics of a split, values per image, BatchNorm's statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from trainables.base import Split
from trainables.common.data_sampler import shares, shares_in_step
from trainables.common.training import weights_digest
from trainables.data.images.dataset import Images, prepare
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import WEIGHTS, Classifier, load_classifier, new_classifier
from trainables.runtime.seeding import isolated_rng
from trainables.worker import Worker

EVAL_BATCH = 128
"""Images per evaluation batch: fixed, so that metrics do not depend on `batch_size`."""
RECALIBRATED = 10_000
"""Images of the train split, spread evenly, from which BatchNorm's statistics are recomputed."""


def evaluate(
    config: ImageClassifierConfig, weights: Path, split: Split, cache: Path
) -> dict[str, float]:
    """`accuracy` and `top5_accuracy` (0 to 1) and `loss` (nats per image) of weights on a split."""
    with _trained(config, weights, cache) as (classifier, images):
        return score(classifier, images, split, config)


def examples(
    config: ImageClassifierConfig, weights: Path, split: Split, cache: Path
) -> dict[str, list[float]]:
    """The metrics of each image of a split."""
    with _trained(config, weights, cache) as (classifier, images):
        slices = shares(len(images.labels(split)), EVAL_BATCH, 0, 1)
        parts = [_values(classifier, images, split, part, config) for part in slices]
        return {name: torch.cat([p[name] for p in parts]).tolist() for name in parts[0]}


def initial(config: ImageClassifierConfig, target: Path, cache: Path) -> str:
    """Write the weights of step 0; returns their lineage."""
    classifier = new_classifier(config, prepare(config.data, cache))
    classifier.save(target)
    return weights_digest(classifier.model)


def digest(config: ImageClassifierConfig, weights: Path, cache: Path) -> str:
    """Lineage of models that start from the weights in a folder."""
    return weights_digest(load_classifier(config, prepare(config.data, cache), weights).model)


def recalibrate(config: ImageClassifierConfig, weights: Path, cache: Path) -> None:
    """Recompute BatchNorm's statistics over the train split, without augmentation."""
    with _trained(config, weights, cache) as (classifier, images):
        pixels = images.pixels(Split.TRAIN)
        picked = np.arange(len(pixels))
        if len(pixels) > RECALIBRATED:
            picked = np.linspace(0, len(pixels) - 1, RECALIBRATED).astype(np.int64)
        batches = (
            _on(classifier, torch.from_numpy(pixels[picked[part]]))
            for part in shares(len(picked), EVAL_BATCH, 0, 1)
        )
        update_bn(batches, classifier)
        stored = load_file(weights / WEIGHTS)  # replaces the statistics only, in their dtype
        for name, value in classifier.model.named_buffers():
            if name in stored:
                stored[name] = value.to("cpu", stored[name].dtype)
        save_file(stored, weights / WEIGHTS, {"format": "pt"})


def score(
    classifier: Classifier,
    images: Images,
    split: Split,
    config: ImageClassifierConfig,
    worker: Worker | None = None,
) -> dict[str, float]:
    """Metrics over a split. With a worker, the ranks share it and get the same result."""
    count = len(images.labels(split))
    classifier.eval()
    sums = {"accuracy": 0.0, "loss": 0.0, "top5_accuracy": 0.0}
    parts, counted = shares_in_step(count, EVAL_BATCH, worker)
    for index, part in enumerate(parts):
        for name, values in _values(classifier, images, split, part, config).items():
            sums[name] += float(values.sum()) * (index < counted)
    classifier.train()
    if worker is not None:
        sums = worker.sum(sums)
    return {name: total / count for name, total in sums.items()}


@torch.no_grad()
def _values(
    classifier: Classifier, images: Images, split: Split, part: slice, config: ImageClassifierConfig
) -> dict[str, torch.Tensor]:
    """Metrics of each image of a part of a split, float64 on the CPU."""
    pixels = _on(classifier, torch.from_numpy(np.array(images.pixels(split)[part])))
    labels = torch.from_numpy(images.labels(split)[part]).to(pixels.device)
    found = logits(classifier, pixels, config)
    best = found.topk(min(5, found.shape[1]), dim=1).indices == labels[:, None]
    values = {
        "accuracy": best[:, 0],
        "loss": F.cross_entropy(found, labels, reduction="none"),
        "top5_accuracy": best.any(1),
    }
    return {name: value.cpu().double() for name, value in values.items()}


def logits(model: nn.Module, pixels: torch.Tensor, config: ImageClassifierConfig) -> torch.Tensor:
    """Float32 logits of normalised pixels, computed in the configured dtype."""
    half = is_half(config, pixels.device)
    with torch.autocast(pixels.device.type, dtype=torch.bfloat16, enabled=half):
        found: torch.Tensor = model(pixels)
    return found.float()


def image_losses(
    scores: torch.Tensor,
    labels: torch.Tensor,
    config: ImageClassifierConfig,
    others: torch.Tensor | None = None,
    keep: torch.Tensor | float | None = None,
) -> torch.Tensor:
    """Cross-entropy of each image, [images].

    Args:
        scores: float32 [images, classes].
        labels: int64 [images].
        config: gives the smoothing.
        others: with mixup, the labels of the images' partners.
        keep: with mixup, the share of the image itself: a number, or [images].
    """
    smoothing = config.label_smoothing
    own = F.cross_entropy(scores, labels, label_smoothing=smoothing, reduction="none")
    if others is None or keep is None:
        return own
    partner = F.cross_entropy(scores, others, label_smoothing=smoothing, reduction="none")
    return keep * own + (1 - keep) * partner


def is_half(config: ImageClassifierConfig, device: torch.device) -> bool:
    """Whether to compute in bfloat16 on this device."""
    if config.dtype != "auto":
        return config.dtype == "bfloat16"
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def _on(classifier: Classifier, images: torch.Tensor) -> torch.Tensor:
    """Normalised pixels of uint8 images, on the model's device."""
    device = next(classifier.parameters()).device
    return classifier.normalised(images.to(device, non_blocking=True))


@contextmanager
def _trained(
    config: ImageClassifierConfig, weights: Path, cache: Path
) -> Iterator[tuple[Classifier, Images]]:
    """The model of a folder in evaluation mode, and the images."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with isolated_rng(0, 0, device):
        images = prepare(config.data, cache)
        yield load_classifier(config, images, weights).to(device).eval(), images
