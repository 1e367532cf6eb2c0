"""Export of a trained image classifier to other runtimes: normalised pixels in, logits out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from results.export.exportable import Exportable
from trainables.base import Split
from trainables.data.images.dataset import prepare
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import load_classifier
from trainables.image_classifier.modeling_resnet import SmallResNet, SmallResNetConfig


def exportable(config: ImageClassifierConfig, weights: Path, cache: Path) -> Exportable:
    """Normalised pixels [images, channels, height, width] to logits [images, classes].

    It is verified on images of the selection split.
    """
    images = prepare(config.data, cache)
    model = load_classifier(config, images, weights).eval()
    pixels = model.normalised(torch.tensor(images.pixels(Split.SELECTION)[:40]))
    examples = (pixels[:4], pixels[:1], pixels[4:37])
    return Exportable(model, "pixel_values", "logits", examples, classes=True)


def export_hf(config: ImageClassifierConfig, weights: Path, target: Path, cache: Path) -> None:
    """Write a folder that `transformers` loads; that of a ResNet contains the model's code."""
    classifier = load_classifier(config, prepare(config.data, cache), weights)
    if isinstance(classifier.model, SmallResNet):
        config_class: Any = SmallResNetConfig
        model_class: Any = SmallResNet
        config_class.register_for_auto_class()
        model_class.register_for_auto_class("AutoModelForImageClassification")
    classifier.save(target)
