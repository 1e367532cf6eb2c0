"""Evaluation, initialisation and export of the model, by the task's own trainable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results.export.exportable import Exportable
from trainables.base import Split, Trainable
from trainables.federated.config import FederatedConfig
from trainables.registry import resolve


def task_of(config: FederatedConfig) -> Trainable[Any]:
    """The trainable that each client runs."""
    return resolve(config.task)


def evaluate(config: FederatedConfig, weights: Path, split: Split, cache: Path) -> dict[str, float]:
    """The task's metrics on a split."""
    return task_of(config).evaluate(config.inner, weights, split, cache)


def examples(
    config: FederatedConfig, weights: Path, split: Split, cache: Path
) -> dict[str, list[float]]:
    """The task's metrics of each example."""
    return task_of(config).examples(config.inner, weights, split, cache)


def initial(config: FederatedConfig, target: Path, cache: Path) -> str:
    """Write the weights before the first round; returns their lineage."""
    return task_of(config).initial(config.inner, target, cache)


def digest(config: FederatedConfig, weights: Path, cache: Path) -> str:
    """Lineage of models that start from the weights in a folder."""
    return task_of(config).digest(config.inner, weights, cache)


def recalibrate(config: FederatedConfig, weights: Path, cache: Path) -> None:
    """Recompute the statistics of the task's model that are not learned."""
    task_of(config).recalibrate(config.inner, weights, cache)


def exportable(config: FederatedConfig, weights: Path, cache: Path) -> Exportable:
    """The task's model as other runtimes take it."""
    return task_of(config).exportable(config.inner, weights, cache)


def export_hf(config: FederatedConfig, weights: Path, target: Path, cache: Path) -> None:
    """Write the task's model in its `transformers` form."""
    task_of(config).export_hf(config.inner, weights, target, cache)
