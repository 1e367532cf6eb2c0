"""Augmentation of whole batches on the device.

What happens to an image is drawn from (seed, step, place in the batch of all workers). Therefore a
resumed trial, and one with another number of workers, sees the same images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from trainables.client import Rows
from trainables.image_classifier.config import ImageClassifierConfig


@dataclass(frozen=True)
class Draws:
    """The random numbers of one worker's share of a batch.

    Attributes:
        shift: pixels by which each image moves, int64 [images, 2]: 0 to 2 x crop.
        flip: bool [images].
        centre: of the cutout's square, as a fraction of height and width, float32 [images, 2].
        keep: share of the image itself; the rest is its partner's (mixup).
    """

    shift: torch.Tensor
    flip: torch.Tensor
    centre: torch.Tensor
    keep: float


_NOTHING = Draws(torch.empty(0, 2), torch.empty(0), torch.empty(0, 2), 1.0)


def draw(config: ImageClassifierConfig, seed: int, step: int, share: slice) -> Draws:
    """The draws of a step for the images of `share`, a part of the whole batch."""
    if not (config.crop or config.flip or config.cutout or config.mixup):
        return _NOTHING
    rng = np.random.default_rng([seed, step, 1])
    shift = rng.integers(0, 2 * config.crop, (config.batch_size, 2), endpoint=True)
    flip = rng.random(config.batch_size) < 0.5
    centre = rng.random((config.batch_size, 2), dtype=np.float32)
    keep = float(rng.beta(config.mixup, config.mixup)) if config.mixup else 1.0
    of_share = [torch.from_numpy(drawn[share]) for drawn in (shift, flip, centre)]
    return Draws(of_share[0], of_share[1], of_share[2], keep)


def augment(images: torch.Tensor, draws: Draws, config: ImageClassifierConfig) -> torch.Tensor:
    """Shift and mirror images, uint8 [images, channels, height, width]."""
    if not config.crop and not config.flip:
        return images
    device, (count, channels, height, width) = images.device, images.shape
    shift, flip = draws.shift.to(device), draws.flip.to(device)
    columns = torch.arange(width, device=device).expand(count, width)
    if config.flip:
        columns = torch.where(flip[:, None], columns.flip(1), columns)
    columns = columns + shift[:, 1:]
    rows = torch.arange(height, device=device) + shift[:, :1]
    padded = F.pad(images, (config.crop,) * 4)
    image = torch.arange(count, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[None, :, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def blank(pixels: torch.Tensor, draws: Draws, side: int) -> torch.Tensor:
    """Set a square in each normalised image to the mean, 0 (DeVries & Taylor 2017)."""
    if not side:
        return pixels
    device, (height, width) = pixels.device, pixels.shape[2:]
    size = torch.tensor([height, width], device=device)
    first = (draws.centre.to(device) * size).long() - side // 2
    rows = torch.arange(height, device=device) - first[:, :1]
    columns = torch.arange(width, device=device) - first[:, 1:]
    inside = ((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[
        :, None
    ]
    return pixels.masked_fill(inside[:, None], 0.0)


def mixup_indices(size: int, batch: int, seed: int, step: int, share: slice) -> Rows:
    """Images of the train split to mix with those of `share` (Zhang et al. 2018), int64."""
    drawn: Rows = np.random.default_rng([seed, step, 2]).integers(0, size, batch)
    return drawn[share]
