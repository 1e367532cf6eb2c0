"""The benchmark's trial for this platform: a `Trainable`, named by its path."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from benchmarks.work import loss_at
from trainables.base import Split, Trainable, TrainableConfig
from trainables.job import Answer
from trainables.worker import Worker


class TrivialConfig(TrainableConfig):
    """Hyperparameters of a trial that computes almost nothing."""

    x: float = Field(description="best at 0.3")
    learning_rate: float = Field(gt=0, description="best at 10 ** -2.5; trains nothing")
    reports: int = Field(5, ge=1, description="steps, each of them reported")
    step_s: float = Field(0.05, ge=0, description="seconds of work in each step")


class Trivial(Trainable[TrivialConfig]):
    """Trains a tiny DDP model, and sleeps."""

    Config: ClassVar[type[TrainableConfig]] = TrivialConfig

    def train(self, config: TrivialConfig, worker: Worker) -> None:
        """Work and report, always from the first step."""
        from benchmarks.work import tiny_model, work
        from trainables.training.gradients import data_parallel

        model = data_parallel(tiny_model().to(worker.device), worker)
        for step in range(1, config.reports + 1):
            work(model, config.step_s)
            loss = loss_at(config.x, config.learning_rate, step)
            answer = worker.report(step=step, metrics={"loss": loss}, final=step == config.reports)
            if answer is not Answer.CONTINUE:
                break

    def evaluate(
        self, config: TrivialConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        """The metric after the last step."""
        return {"loss": loss_at(config.x, config.learning_rate, config.reports)}
