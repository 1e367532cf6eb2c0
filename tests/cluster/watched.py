"""A trainable whose trials stall on demand, with the measurements of a GPU from a recording."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from tests.ray.stepping import Stepping
from trainables.base import TrainableConfig
from trainables.worker import Worker

RECORDED = {
    "node": "gpu-1",
    "gpu": "0",
    "uuid": "GPU-5f4e",
    "system/gpu_percent": 80.0,
    "system/gpu_celsius": 60.0,
    "system/gpu_memory_mb": 900.0,
    "system/gpu_watts": 300.0,
}


class WatchedConfig(TrainableConfig):
    """Settings of `Watched`."""

    x: float = Field(description="has no effect")
    stall: str = Field(description="while this file exists, no trial makes a step")


class Watched(Stepping):
    """Steps of half a second, without an end."""

    Config = WatchedConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        time.sleep(0.5)
        while Path(config.stall).exists():
            time.sleep(0.1)
        line = {"step": number, "time": time.time(), **RECORDED}
        with open(worker.job.paths.samples(worker.job.attempt), "a") as f:
            f.write(json.dumps(line) + "\n")
        return float(number)

    def is_last(self, number: int, config: Any, worker: Worker) -> bool:
        return False

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        return {"loss": 1 / len(past), "samples_seen": 8.0 * len(past)}
