"""A trainable on a device that is not there: its meter says what a GPU's would."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from results.records.worker_samples import GPU_NEEDED, GPU_PERCENT
from tests.ray.stepping import Stepping, SteppingConfig
from trainables.runtime.device_meter import DeviceMeter
from trainables.worker import Worker

RATES = {1.0: 100.0, 0.5: 90.0, 0.33: 80.0}
"""Tokens per second of a trial that has this part of the device."""
HALF, THIRD = 0.5, 0.33


class SharingConfig(SteppingConfig):
    """Settings of `Sharing`."""

    x: float = Field(description="added at each step")
    marks: str = Field(description="folder in which trials tell each other how far they are")


class Sharing(Stepping):
    """Two trials with half the device wait for each other; one with a third has no memory."""

    Config = SharingConfig

    def device_meter(self, device: torch.device) -> DeviceMeter:
        return lambda: {GPU_PERCENT: 40.0, GPU_NEEDED: 20.0}

    def step(self, number: int, config: Any, worker: Worker) -> float:
        marks, share = Path(config.marks), part_of_device()
        if share == THIRD and not (marks / "short").exists():
            (marks / "short").write_text(worker.job.trial_id)
            raise torch.OutOfMemoryError("CUDA out of memory")
        if share == HALF and number > 1:
            (marks / f"{number}-{worker.job.trial_id}").touch()
            while len(list(marks.glob(f"{number}-*"))) < 2:
                threading.Event().wait(0.02)
        return float(config.x) * number

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        return {"loss": sum(past), "tokens_per_second": RATES[part_of_device()]}


def part_of_device() -> float:
    """The part of it that Ray gave this process."""
    import ray

    return float(ray.get_runtime_context().get_assigned_resources()["GPU"])
