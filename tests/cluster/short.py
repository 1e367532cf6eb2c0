"""A trainable whose trials take half a second."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from tests.ray.stepping import Stepping
from trainables.base import TrainableConfig
from trainables.worker import Worker

STEP_S = 0.25


class ShortConfig(TrainableConfig):
    """Settings of `Short`."""

    x: float = Field(description="the loss of the first step")


class Short(Stepping):
    """Two steps, of which the second halves the loss."""

    Config = ShortConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        time.sleep(STEP_S)
        return float(config.x) / number

    def total(self, config: Any) -> int:
        return 2

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        return {"loss": past[-1]}
