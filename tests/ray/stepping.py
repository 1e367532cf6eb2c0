"""Trainables of the tests with Ray: a base class that counts steps, and its subclasses."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from pydantic import Field

from trainables.base import Split, Trainable, TrainableConfig
from trainables.digits.config import Digits, DigitsConfig
from trainables.job import Answer
from trainables.worker import Worker

STATE = "past.json"
STEP_S = 1.0
"""Seconds of a step of `Endless`."""


class SteppingConfig(TrainableConfig):
    """Settings of `Stepping`."""

    steps: int = Field(6, description="number of steps")


class Stepping(Trainable[Any]):
    """Reports the sum of all steps, so a lost or repeated step shows in the curve."""

    Config = SteppingConfig

    def train(self, config: Any, worker: Worker) -> None:
        print("pid", os.getpid(), flush=True)
        found, past = worker.resume(), list[float]()
        if found is not None:
            past = json.loads((found.folder / STATE).read_text())
        print("from step", len(past), flush=True)
        over = len(past) == self.total(config)  # a driver may die between checkpoint and record
        while not over:
            past.append(self.step(len(past) + 1, config, worker))
            last = self.is_last(len(past), config, worker)
            answer = worker.report(
                step=len(past),
                metrics=self.summed(past, config),
                checkpoint=lambda folder: self.save(folder, past, worker),
                final=last,
            )
            over = last or answer is not Answer.CONTINUE

    def step(self, number: int, config: Any, worker: Worker) -> float:
        """Do a step; return its summand."""
        return float(number)

    def is_last(self, number: int, config: Any, worker: Worker) -> bool:
        """Whether the step that was just done is the last."""
        return bool(number == self.total(config))

    def total(self, config: Any) -> int | None:
        """Number of steps, where the configuration tells it."""
        return getattr(config, "steps", None)

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        """Metrics of the report after a step."""
        return {"loss": sum(past)}

    def save(self, folder: Path, past: list[float], worker: Worker) -> None:
        """Write this rank's part of a checkpoint."""
        if worker.rank == 0:
            (folder / STATE).write_text(json.dumps(past))

    def evaluate(self, config: Any, weights: Path, split: Split, cache: Path) -> dict[str, float]:
        return {"loss": 0.0}


def wait_for_file(name: str) -> None:
    """Wait until a file exists; the test's time limit ends a wait that lasts."""
    while not Path(name).exists():
        threading.Event().wait(0.05)


class EndlessConfig(TrainableConfig):
    """Settings of `Endless`."""

    x: float = Field(description="has no effect")
    end: str = Field(description="a file: the training ends once it is there")


class Endless(Stepping):
    """Trains until a file exists; every rank saves a file of its own."""

    Config = EndlessConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        threading.Event().wait(STEP_S)
        return float(number)

    def is_last(self, number: int, config: Any, worker: Worker) -> bool:
        return bool(worker.mean({"": Path(config.end).exists()})[""])

    def save(self, folder: Path, past: list[float], worker: Worker) -> None:
        super().save(folder, past, worker)
        (folder / f"{worker.rank}.txt").write_text("s")


class PatientConfig(SteppingConfig):
    """Settings of `Patient`."""

    index: int = Field(description="has no effect")
    lost: str = Field(description="a file that exists once the machine is lost")


class Patient(Stepping):
    """Waits at step 4 until a machine is lost."""

    Config = PatientConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        if number == 4:
            wait_for_file(config.lost)
        return float(number)


class SickConfig(SteppingConfig):
    """Settings of `Sick`."""

    index: int = Field(description="has no effect")


class Sick(Stepping):
    """Fails in its first two attempts."""

    Config = SickConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        import ray

        print("on", ray.get_runtime_context().get_node_id(), flush=True)
        if worker.job.attempt < 3:
            raise RuntimeError("ECC error")
        return float(number)


class CounterConfig(SteppingConfig):
    """Settings of `Counter`."""

    rate: float = Field(gt=0, description="added at each step")


class Counter(Stepping):
    """Its weights are the list of its rates."""

    Config = CounterConfig

    def step(self, number: int, config: Any, worker: Worker) -> float:
        return float(config.rate)

    def summed(self, past: list[float], config: Any) -> dict[str, float]:
        return {"total": sum(past), "cost": config.rate * len(past)}


class GatedConfig(DigitsConfig):
    """Settings of `Gated`."""

    gate: str = Field(description="file that one worker waits for")


class Gated(Digits):
    """Digits that waits until its machine is lost, and until it is back."""

    Config = GatedConfig

    def train(self, config: Any, worker: Worker) -> None:
        report, pause = worker.report, threading.Event()

        def gated(*, step: int, **said: Any) -> Answer:
            answer = report(step=step, **said)
            while worker.job.attempt == 1 and step == 3:
                pause.wait(0.05)  # until its machine is lost
            if worker.world_size == 1 and step >= 6:
                wait_for_file(config.gate)
                pause.wait(0.5)  # the driver looks at the cluster every five seconds
            return answer

        worker.report = gated  # type: ignore[method-assign]
        super().train(config, worker)
