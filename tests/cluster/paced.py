"""A trainable whose ranks exchange numbers at every step, which takes a given time."""

from __future__ import annotations

import threading
from typing import Any

from pydantic import Field

from tests.ray.stepping import Stepping, SteppingConfig
from trainables.worker import Worker


class PacedConfig(SteppingConfig):
    """Settings of `Paced`."""

    seconds: float = Field(description="of a step")


class Paced(Stepping):
    """Takes its time for each step, so that a fault meets it at work."""

    Config = PacedConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        threading.Event().wait(config.seconds)
        return worker.mean({"rank": float(worker.rank)})["rank"] + number
