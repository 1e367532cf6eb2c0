"""A language model that the first trial trains once for all, such as their start or teacher."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import save_tokenizer
from trainables.causal_lm.task import LanguageTask
from trainables.data.shared_folder import publish_settings
from trainables.parallel.sharded_state import unique_state
from trainables.training.client import TaskClient, train_step
from trainables.training.data_sampler import Sampler
from trainables.training.task import open_task

log = logging.getLogger(__name__)

VERSION = 1
"""Of the training in `trained_once`; raise it with any change of code that changes the model."""


def trained_once(
    config: CausalLMConfig, cache: Path, device: torch.device, alive: Callable[[], None]
) -> Path:
    """The folder of the model that a configuration trains, with its tokenizer.

    The first process trains it, always in the same way; the others wait for it.

    Args:
        config: of `max_steps` steps from `init_seed`, which also shuffles the data.
        cache: folder of prepared data, which trials share.
        device: of the training.
        alive: called every now and then.
    """
    task: Any = open_task(config, cache)
    # version 1 trained all parameters at one learning rate
    several = config.parametrization != "standard" or config.adamw_learning_rate is not None
    told = {"version": VERSION + several, "config": task.config.model_dump(exclude={"data"})}
    settings = {**told, "data": task.dataset.key}

    def build(new: Path) -> None:
        _train(task, new, device, alive)

    return publish_settings(cache, settings, build, prefix="model-", alive=alive)


def _train(
    task: LanguageTask, folder: Path, device: torch.device, alive: Callable[[], None]
) -> None:
    config, client, loss = task.config, TaskClient(task), torch.tensor(0.0)
    model: Any = task.to_device(task.new_model(), device).train()
    optimizer = task.optimizer(model)
    sampler = Sampler(task.size, config.batch_size, config.init_seed)
    for step in range(config.max_steps):
        alive()
        rows = sampler.rows(step)
        loss = train_step(client, model, optimizer, rows, step, config.max_steps, device)
    log.info("model trained for %d steps, last loss %.3f: %s", config.max_steps, loss, folder)
    model.config.save_pretrained(folder)  # its weights, `save_pretrained` writes on rank 0 only
    weights = {name: weight.detach() for name, weight in unique_state(model).items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})  # of tied ones the first
    save_tokenizer(config, task.dataset, folder)
