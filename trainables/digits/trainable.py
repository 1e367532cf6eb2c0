"""The trainable `digits`."""

from __future__ import annotations

from trainables.base import Trainable
from trainables.common.communication.config import METRIC_NAMES
from trainables.digits.config import DigitsConfig


class Digits(Trainable[DigitsConfig]):
    """Classifies images of digits. Reports once per epoch: `accuracy` (0 to 1), `loss` (nats)."""

    Config = DigitsConfig
    implementation = (
        "trainables.digits.loop",
        "trainables.digits.export",
        "trainables.digits.client",
    )
    metric_names = ("accuracy", "loss", "train_loss", "samples_seen", *METRIC_NAMES)
    clock = "epoch"
    elastic = True
