"""The trainable `image_classifier`."""

from __future__ import annotations

from trainables.image_classifier.config import ImageClassifierConfig
from trainables.training.communication.config import METRIC_NAMES
from trainables.training.trainable import TaskTrainable


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
