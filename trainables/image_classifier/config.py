"""The trainable `image_classifier` and its hyperparameters, readable without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from search_spaces.layout import Layout
from trainables.config import Problem
from trainables.data.images.config import ImageDataConfig
from trainables.parallel.pipeline_rules import pipeline_field, pipeline_problem
from trainables.training.communication.config import METRIC_NAMES, DataParallelConfig
from trainables.training.schedules import Schedule
from trainables.training.trainable import TaskTrainable

RESNETS: dict[str, tuple[tuple[int, ...], int]] = {
    "resnet8": ((16, 32, 64), 1),
    "resnet14": ((16, 32, 64), 2),
    "resnet20": ((16, 32, 64), 3),
    "resnet18": ((64, 128, 256, 512), 2),
}
"""Widths of the stages, and blocks per stage. With 3 channels and 10 classes: 78 thousand, 175
thousand, 273 thousand and 11.2 million weights."""
GROUP_WIDTH = 8


class ImageClassifierConfig(DataParallelConfig):
    """Hyperparameters of an image classifier."""

    task_class: ClassVar[str] = "trainables.image_classifier.task:ImageTask"

    model: str = Field(
        "resnet8",
        description="resnet8, resnet14, resnet20 or resnet18 for small images, from scratch; or a"
        " pretrained image classifier of transformers: a folder (a checkpoint or a soup of this"
        " trainable, too) or a hub id",
    )
    architecture: dict[str, Any] | None = Field(
        None,
        description="in place of model: the configuration of any transformers image classifier to"
        " train from scratch, as {model_type: vit, image_size: 32, patch_size: 4, hidden_size: 192,"
        " …}",
    )
    width: int | None = Field(
        None,
        gt=0,
        multiple_of=GROUP_WIDTH,
        description="ResNets: channels of the first stage; null: 16, resnet18: 64",
    )
    norm: Literal["batch", "group"] = Field(
        "batch",
        description="ResNets: batch (BatchNorm: each worker normalizes over its own part of the"
        " batch) or group (GroupNorm: the same result with any number of workers)",
    )
    optimizer: Literal["sgd", "adamw"] = Field(
        "sgd", description="sgd (with Nesterov momentum) or adamw"
    )
    learning_rate: float = Field(0.05, gt=0, description="the optimizer's peak step size")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd; AdamW's beta1")
    beta2: float = Field(0.999, gt=0, lt=1, description="AdamW's decay of squared gradients")
    weight_decay: float = Field(
        5e-4, ge=0, description="decay of matrices and kernels, per step and lr"
    )
    grad_clip: float | None = Field(
        None, gt=0, description="largest L2 norm of the gradient; null: not clipped"
    )
    batch_size: int = Field(
        64, gt=0, description="images per optimizer step, of all workers together"
    )
    micro_batch_size: int | None = Field(
        None, gt=0, description="images that a worker computes at once; null: all of its share"
    )
    epochs: int = Field(10, gt=0, description="passes over the train split; a report after each")
    schedule: Schedule = Field(
        "cosine",
        description="learning rate after the warmup: cosine or linear decay to a tenth of the peak,"
        " wsd (constant, then linear decay), or constant",
    )
    warmup_fraction: float = Field(
        0.05, ge=0, le=1, description="fraction of all steps with a linearly rising learning rate"
    )
    decay_fraction: float = Field(
        0.2, ge=0, le=1, description="wsd: fraction of all steps at the end in which it decays"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="probability that is spread evenly over all classes"
    )
    ema_decay: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="decay per step of an exponential moving average of the weights, which is then"
        " what is evaluated, averaged and exported; null: none",
    )
    crop: int = Field(
        0, ge=0, description="augmentation: shift by up to so many pixels, with black borders"
    )
    flip: bool = Field(False, description="augmentation: mirror half of the images")
    cutout: int = Field(
        0, ge=0, description="augmentation: side of a square that is blanked out, in pixels"
    )
    mixup: float = Field(
        0.0,
        ge=0,
        description="augmentation: images are mixed in pairs, with shares of a Beta distribution of"
        " this alpha; 0: not",
    )
    init_seed: int = Field(
        0, ge=0, description="of the initial weights; models of one init_seed can be averaged"
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="of the computation; weights and optimizer stay float32. auto: bfloat16 on a"
        " GPU that has it, else float32; each worker looks when an attempt starts",
    )
    data: ImageDataConfig = Field(
        default_factory=lambda: ImageDataConfig(), description="the images"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ImageClassifierConfig:
        fields = type(self).model_fields
        if self.architecture is not None and self.model != fields["model"].default:
            raise ValueError("model and architecture exclude each other; remove one of them")
        if self.architecture is not None and "model_type" not in self.architecture:
            raise ValueError("architecture needs a model_type, for example {model_type: vit}")
        given = [n for n in ("width", "norm") if getattr(self, n) != fields[n].default]
        if given and self.resnet is None:
            raise ValueError(f"{', '.join(given)}: only for {', '.join(RESNETS)}")
        return self

    @property
    def resnet(self) -> tuple[tuple[int, ...], int] | None:
        """Widths and depth of a ResNet that is trained from scratch; None for another model."""
        if self.architecture is not None or self.model not in RESNETS:
            return None
        widths, depth = RESNETS[self.model]
        first = self.width or widths[0]
        return tuple(first * w // widths[0] for w in widths), depth

    @property
    def pretrained(self) -> str | None:
        """Folder or hub id of a pretrained model."""
        other = self.architecture is not None or self.model in RESNETS
        return None if other else self.model

    @property
    def num_parameters(self) -> int | None:
        """Weights of a ResNet for ten classes; None for another model."""
        if self.resnet is None:
            return None
        widths, depth = self.resnet
        channels = 1 if self.data.source == "digits" else 3
        total, width = 9 * channels * widths[0] + 2 * widths[0], widths[0]
        for wide in widths:
            shortcut = (width + 2) * wide if width != wide else 0
            total += 9 * width * wide + shortcut + 9 * (2 * depth - 1) * wide**2 + 4 * depth * wide
            width = wide
        return total + 10 * (width + 1)

    @property
    def checkpoint_bytes(self) -> int | None:
        """Float32 weights, their moving average if there is one, and the optimizer's averages."""
        copies = (2 if self.optimizer == "sgd" else 3) + (self.ema_decay is not None)
        weights = self.num_parameters
        return None if weights is None else 4 * copies * weights

    def halve_micro_batch(self, workers: int) -> dict[str, int] | None:
        """None with BatchNorm: it normalizes over the batch, so that halves give other values."""
        return None if self.has_batch_norm else super().halve_micro_batch(workers)

    def validate_workers(self, workers: Sequence[int]) -> tuple[str, str] | None:
        """BatchNorm normalizes over one worker's part of the batch: it needs a fixed number."""
        if self.has_batch_norm and len(workers) > 1:
            rule = "normalizes over each worker's part of the batch, so resources.workers must be"
            if self.resnet is None:
                return "model", f"may have BatchNorm, which {rule} one number"
            return "norm", f"batch {rule} one number; group has no such limit"
        return super().validate_workers(workers)

    def validate_layout(self, layout: Layout) -> tuple[str, str] | None:
        """Stages take blocks of our ResNets; BatchNorm would see microbatches."""
        if layout.pp == 1:
            return super().validate_layout(layout)
        given = {
            "architecture": "another model than a ResNet" if self.architecture else None,
            "model": self.model if self.resnet is None else None,
            "norm": "batch" if self.has_batch_norm else None,
            "micro_batch_size": self.micro_batch_size,  # layout.microbatches is that
        }
        if found := pipeline_field(layout, given):
            return found
        widths, depth = self.resnet or ((), 0)
        ranks, batch = layout.data_parallel, self.batch_size
        if batch % ranks:
            return "", f"{ranks} data-parallel ranks do not divide batch_size, {batch}"
        blocks = f"the number of blocks of {self.model}"
        problem = pipeline_problem(layout, batch // ranks, blocks, depth * len(widths))
        return ("", problem) if problem else super().validate_layout(layout)

    @property
    def has_batch_norm(self) -> bool:
        """Whether the model has BatchNorm; also for a model of which that is not known."""
        return self.norm == "batch"

    def missing_files(self) -> list[Problem]:
        """What the data lacks, and the folder of a pretrained model."""
        from trainables.data.images.sources import problems

        found: list[Problem] = [(("data", "path"), problem) for problem in problems(self.data)]
        name = self.pretrained or ""
        if name.startswith(("/", ".", "~")) and not Path(name).expanduser().is_dir():
            found.append((("model",), f"no such folder: {name} (from {Path.cwd()})"))
        return found

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The configuration with relative paths made absolute: workers run in other folders."""
        fixed = dict(config)
        if isinstance(data := config.get("data"), dict):
            fixed["data"] = ImageDataConfig.resolve_paths(data, folder)
        name = config.get("model")
        if isinstance(name, str) and name not in RESNETS and (folder / name).is_dir():
            fixed["model"] = str(folder / name)
        return fixed


class ImageClassifier(TaskTrainable[ImageClassifierConfig]):
    """A ResNet or any `transformers` image classifier, on digits, CIFAR-10, Parquet or folders."""

    Config = ImageClassifierConfig
    metric_names = (
        "accuracy",
        "loss",
        "top5_accuracy",
        "train_loss",
        "learning_rate",
        "samples_seen",
        "images_per_second",
        "peak_memory_gib",
        *METRIC_NAMES,
    )
    clock = "epoch"
    elastic = True
    axes = ("pp", "dp_replicate", "dp_shard")
