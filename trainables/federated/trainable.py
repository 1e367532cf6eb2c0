"""The trainable `federated`."""

from __future__ import annotations

from trainables.base import Trainable
from trainables.federated.config import FederatedConfig


class Federated(Trainable[FederatedConfig]):
    """Clients train another trainable's model, and a server averages it; one report per round."""

    Config = FederatedConfig
    implementation = (
        "trainables.federated.loop",
        "trainables.federated.task",
    )
    clock = "round"
    elastic = True
