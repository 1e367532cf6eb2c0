"""Scores of images, and their loss with smoothed labels and mixed images."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from trainables.image_classifier.config import ImageClassifierConfig
from trainables.training.precision import autocast


def logits(model: nn.Module, pixels: torch.Tensor, config: ImageClassifierConfig) -> torch.Tensor:
    """Float32 logits of normalised pixels, computed in the configured dtype."""
    with autocast(config.dtype, pixels.device):
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
