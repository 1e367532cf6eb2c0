"""Evaluation of a language model whose weights are in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import load_model, new_model, save_model
from trainables.causal_lm.model.objective import place
from trainables.causal_lm.task import Task, open_task, task_of
from trainables.common.training import weights_digest
from trainables.runtime.seeding import isolated_rng


def evaluate(config: CausalLMConfig, weights: Path, split: Split, cache: Path) -> dict[str, float]:
    """Metrics of weights on a split."""
    with _trained(config, weights, cache) as (model, task):
        return task.evaluate(model, split)


def examples(
    config: CausalLMConfig, weights: Path, split: Split, cache: Path
) -> dict[str, list[float]]:
    """The metrics of `evaluate` of each sequence of a split."""
    with _trained(config, weights, cache) as (model, task):
        return task.examples(model, split)


@contextmanager
def _trained(
    config: CausalLMConfig, weights: Path, cache: Path
) -> Iterator[tuple[nn.Module, Task]]:
    """The model of a folder in evaluation mode, and the task on which it was trained."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with isolated_rng(0, 0, device):
        task = task_of(config, weights, cache)
        yield place(load_model(task.config, task.dataset, weights), device).eval(), task


def initial(config: CausalLMConfig, target: Path, cache: Path) -> str:
    """Write the weights of step 0; returns their lineage."""
    task = open_task(config, cache)
    model = new_model(task.config, task.dataset)
    save_model(model, task.config, task.dataset, target)
    return weights_digest(model)


def digest(config: CausalLMConfig, weights: Path, cache: Path) -> str:
    """Lineage of models that start from the weights in a folder."""
    task = task_of(config, weights, cache)
    return weights_digest(load_model(task.config, task.dataset, weights))
