"""The trainable `image_classifier`."""

from __future__ import annotations

from trainables.base import Trainable
from trainables.image_classifier.config import ImageClassifierConfig


class ImageClassifier(Trainable[ImageClassifierConfig]):
    """A ResNet or any `transformers` image classifier, on digits, CIFAR-10, Parquet or folders."""

    Config = ImageClassifierConfig
    implementation = (
        "trainables.image_classifier.loop",
        "trainables.image_classifier.evaluation",
        "trainables.image_classifier.export",
    )
    metric_names = (
        "accuracy",
        "loss",
        "top5_accuracy",
        "train_loss",
        "learning_rate",
        "images_per_second",
        "peak_memory_gib",
    )
    clock = "epoch"
    elastic = True
