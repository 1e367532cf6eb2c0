"""The trainable `digits`."""

from __future__ import annotations

from typing import ClassVar

from trainables.base import Trainable
from trainables.config import TrainableConfig
from trainables.digits.config import DigitsConfig


class Digits(Trainable[DigitsConfig]):
    """Classifies images of digits. Reports once per epoch: `accuracy` (0 to 1), `loss` (nats)."""

    Config: ClassVar[type[TrainableConfig]] = DigitsConfig
    implementation: ClassVar[tuple[str, ...]] = (
        "trainables.digits.loop",
        "trainables.digits.export",
        "trainables.digits.client",
    )
    clock: ClassVar[str] = "epoch"
    elastic: ClassVar[bool] = True
