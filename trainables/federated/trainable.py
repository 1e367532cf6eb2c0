"""The trainable `federated`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.base import Trainable
from trainables.common.communication.config import METRIC_NAMES
from trainables.federated.config import FederatedConfig


class Federated(Trainable[FederatedConfig]):
    """Clients train another trainable's model, and a server averages it; one report per round."""

    Config = FederatedConfig
    implementation = (
        "trainables.federated.loop",
        "trainables.federated.task",
    )
    metric_names = ("train_loss", "clients")
    clock = "round"
    elastic = True

    def reported_metrics(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Those of the task, and of a round; see the base class."""
        from trainables.registry import resolve

        task = resolve(str(config.get("task", FederatedConfig.model_fields["task"].default)))
        names = dict.fromkeys((*task.metric_names, *self.metric_names))
        return tuple(name for name in names if name not in (*METRIC_NAMES, "samples_seen"))
