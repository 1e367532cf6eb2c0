"""Export of a trained digits network to other runtimes: pixels in, logits out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_model

from results.export.exportable import Exportable
from results.export.quiet import quiet_transformers
from trainables.base import Split
from trainables.digits.config import DigitsConfig
from trainables.digits.loop import WEIGHTS, images_of, load_network


def exportable(config: DigitsConfig, weights: Path, cache: Path) -> Exportable:
    """Pixels [images, 64] to logits [images, 10], verified on images of the selection split."""
    images, _ = images_of(Split.SELECTION)
    examples = (images[:4], images[:1], images[4:37])
    model = load_network(config, weights).eval()
    return Exportable(model, "pixels", "logits", examples, classes=True)


def export_hf(config: DigitsConfig, weights: Path, target: Path, cache: Path) -> None:
    """Write the network and its code, which `transformers` runs."""
    from trainables.digits.modeling_digits import DigitsForImageClassification, DigitsModelConfig

    config_class: Any = DigitsModelConfig
    model_class: Any = DigitsForImageClassification
    config_class.register_for_auto_class()
    model_class.register_for_auto_class("AutoModelForImageClassification")
    model = model_class(config_class(config.hidden_units, config.num_layers, config.batch_norm))
    load_model(model.layers, weights / WEIGHTS)
    with quiet_transformers():
        model.save_pretrained(target)
