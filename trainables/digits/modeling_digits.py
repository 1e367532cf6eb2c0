"""The network as a `transformers` model. This file is copied into an export, as its code."""

from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput

from .network import CLASSES, network  # relative: that file is copied beside this one


class DigitsModelConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """Sizes of the network."""

    model_type = "digits"

    def __init__(
        self, hidden_units: int = 64, num_layers: int = 2, batch_norm: bool = False, **more: Any
    ) -> None:
        self.hidden_units = hidden_units
        self.num_layers = num_layers
        self.batch_norm = batch_norm
        super().__init__(**{"num_labels": CLASSES, **more})


class DigitsForImageClassification(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Classifies images of 8x8 pixels into ten digits."""

    config_class = DigitsModelConfig
    main_input_name = "pixel_values"

    def __init__(self, config: DigitsModelConfig) -> None:
        super().__init__(config)
        self.layers = network(config.hidden_units, config.num_layers, batch_norm=config.batch_norm)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, pixel_values: torch.Tensor) -> ImageClassifierOutput:
        """Pixels [images, 64] in 0..1 to logits [images, 10]."""
        return ImageClassifierOutput(logits=self.layers(pixel_values))
