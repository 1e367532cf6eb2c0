"""The network in the form that plain `transformers` loads, its scores, and their loss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForImageClassification
from transformers.utils.hub import cached_file

from results.export.quiet import quiet_transformers
from trainables.data.images.dataset import Images
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.modeling_resnet import SmallResNet, SmallResNetConfig
from trainables.parallel.pipeline import Pipeline
from trainables.training.precision import autocast
from trainables.training.pretrained import pretrained_model, saved_model
from trainables.training.start_model import loading

WEIGHTS = "model.safetensors"
PROCESSOR = "preprocessor_config.json"
_KIND = "AutoModelForImageClassification"

AutoConfig.register(SmallResNetConfig.model_type, SmallResNetConfig, exist_ok=True)
AutoModelForImageClassification.register(SmallResNetConfig, SmallResNet, exist_ok=True)


class ImageNetwork(nn.Module):
    """A `transformers` model with one input and one output, and the pixels that it expects.

    Attributes:
        model: the `transformers` model.
        mean, std: of each channel of its training images, in 0 to 1; not in its state.
        shape: channels, height and width of its training images.
        pipeline: that computes the model, if this rank has some of its layers only.
    """

    pipeline: list[Pipeline]

    def __init__(
        self, model: nn.Module, mean: list[float], std: list[float], shape: Sequence[int]
    ) -> None:
        super().__init__()
        self.model, self._moments, self.shape = model, (mean, std), shape
        self.pipeline = []  # a list: parameters keep their names
        for name, values in zip(("mean", "std"), self._moments, strict=True):
            self.register_buffer(name, torch.tensor(values).reshape(-1, 1, 1), persistent=False)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Logits [images, classes] of normalised pixels [images, channels, height, width].

        On ranks without the last layers they are 0.
        """
        hf: Any = self.model
        if not self.pipeline:
            logits: torch.Tensor = hf(pixel_values=pixel_values).logits
            return logits
        scores = self.pipeline[0](pixel_values)
        if scores is None:
            return pixel_values.new_zeros(len(pixel_values), hf.config.num_labels)
        found: torch.Tensor = scores
        return found

    def normalised(self, images: torch.Tensor) -> torch.Tensor:
        """Float32 pixels of uint8 images on the model's device."""
        mean: Any = self.mean
        std: Any = self.std
        pixels: torch.Tensor = (images.float() / 255 - mean) / std
        return pixels

    def save(self, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
        """Write weights (None: the current ones), configuration, and the mean and std of pixels."""
        hf: Any = self.model
        with quiet_transformers():
            hf.save_pretrained(folder, state_dict=weights, max_shard_size="1000TB")
        self._save_processor(folder)

    def save_description(self, folder: Path) -> None:
        """Write what `save` does, without the weights."""
        hf: Any = self.model
        described = copy(hf.config)
        described.architectures = [type(self.model).__name__.removeprefix("FSDP")]
        described.save_pretrained(folder)
        self._save_processor(folder)

    def _save_processor(self, folder: Path) -> None:
        """Write how any photo becomes an input: `data.size` resizes and crops in the same way."""
        (mean, std), (channels, height, width) = self._moments, self.shape
        square = height == width
        processor = {
            "image_processor_type": "CLIPImageProcessor",  # the one that crops
            "do_convert_rgb": channels == 3,
            "do_resize": True,
            "size": {"shortest_edge": height} if square else {"height": height, "width": width},
            "resample": 2,  # bilinear
            "do_center_crop": square,
            "crop_size": {"height": height, "width": width},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": mean,
            "image_std": std,
        }
        (folder / PROCESSOR).write_text(json.dumps(processor, indent=1))


def new_classifier(config: ImageClassifierConfig, images: Images) -> ImageNetwork:
    """The model at step 0, float32: pretrained, or random from `init_seed` alone.

    A pretrained model for other classes gets a new last layer.
    """
    auto: Any = AutoModelForImageClassification
    architecture = _architecture(config, images)
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.init_seed)
        if config.pretrained is None:
            model = auto.from_config(architecture)
        else:
            model = pretrained_model(config.pretrained, _KIND, config=architecture)
    return ImageNetwork(model, *_moments(config, images), images.meta["shape"])


def load_classifier(config: ImageClassifierConfig, images: Images, weights: Path) -> ImageNetwork:
    """The model of a configuration, with the weights of a folder that holds `model.safetensors`.

    Raises:
        UserError: the weights are of another model.
    """
    with quiet_transformers():
        model = saved_model(weights, _KIND, _architecture(config, images))
    return ImageNetwork(model, *_moments(config, images), images.meta["shape"])


def _architecture(config: ImageClassifierConfig, images: Images) -> Any:
    channels, size, _ = images.meta["shape"]
    names = dict(enumerate(images.classes))
    labels = {"id2label": names, "label2id": {name: at for at, name in names.items()}}
    if config.resnet is not None:
        widths, depth = config.resnet
        return SmallResNetConfig(channels, widths, depth, config.norm, **labels)
    if config.architecture is not None:
        rest = {k: v for k, v in config.architecture.items() if k != "model_type"}
        given = {"num_channels": channels, "image_size": size, **rest, **labels}
        return AutoConfig.for_model(config.architecture["model_type"], **given)
    with loading(config.model):
        found = AutoConfig.from_pretrained(config.model, trust_remote_code=False)
    found.id2label, found.label2id = labels["id2label"], labels["label2id"]
    return found


def _moments(config: ImageClassifierConfig, images: Images) -> tuple[list[float], list[float]]:
    """Mean and deviation of pixels: of a pretrained model's images, or of the train split."""
    if config.pretrained is not None:
        file = cached_file(
            config.pretrained, PROCESSOR, _raise_exceptions_for_missing_entries=False
        )
        known = json.loads(Path(file).read_text()) if file else {}
        if "image_mean" in known and "image_std" in known:
            return list(known["image_mean"]), list(known["image_std"])
    return images.meta["mean"], images.meta["std"]


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
