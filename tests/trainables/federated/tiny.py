"""A small federated trial."""

from __future__ import annotations

from typing import Any

from trainables.federated.config import FederatedConfig

TINY: dict[str, Any] = {
    "task": "digits",
    "client": {"hidden_units": 8, "num_layers": 1, "batch_size": 16, "learning_rate": 0.01},
    "clients": 3,
    "rounds": 2,
    "local_steps": 3,
}


def config(**changes: Any) -> FederatedConfig:
    return FederatedConfig.model_validate({**TINY, **changes})
