"""The trainable `digits`."""

from __future__ import annotations

from trainables.digits.config import DigitsConfig
from trainables.training.communication.config import METRIC_NAMES
from trainables.training.trainable import TrainedByClients


class Digits(TrainedByClients[DigitsConfig]):
    """Classifies images of digits. Reports once per epoch: `accuracy` (0 to 1), `loss` (nats)."""

    Config = DigitsConfig
    metric_names = ("accuracy", "loss", "train_loss", "samples_seen", *METRIC_NAMES)
    clock = "epoch"
    elastic = True
