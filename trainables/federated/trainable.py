"""The trainable `federated`."""

from __future__ import annotations

from typing import ClassVar

from trainables.base import Trainable
from trainables.config import TrainableConfig
from trainables.federated.config import FederatedConfig


class Federated(Trainable[FederatedConfig]):
    """Clients train another trainable's model, a server averages. Reports once per round."""

    Config: ClassVar[type[TrainableConfig]] = FederatedConfig
    implementation: ClassVar[tuple[str, ...]] = (
        "trainables.federated.loop",
        "trainables.federated.task",
    )
    clock: ClassVar[str] = "round"
    elastic: ClassVar[bool] = True
