"""The teacher: a model in a folder, or one that the first trial trains on the student's data."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from safetensors.torch import save_model as save_weights
from torch import nn

from trainables.causal_lm.client import CausalLMClient
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.data import Dataset
from trainables.causal_lm.model import save_tokenizer
from trainables.causal_lm.objective import place
from trainables.common.data_sampler import Sampler
from trainables.common.shared_folder import publish
from trainables.distill.config import DistillConfig
from trainables.worker import Worker

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the training; raise it with any change of code that changes the teacher."""


def teacher_of(config: DistillConfig, dataset: Dataset, worker: Worker) -> Path:
    """The folder of the teacher, which is trained if it must be; other trials and ranks wait."""
    settings = config.teacher_config
    if settings is None:
        return Path(str(config.teacher)).expanduser()
    told = {"version": VERSION, "config": settings.model_dump(exclude={"data"})}
    text = json.dumps({**told, "data": dataset.key}, sort_keys=True)
    folder = worker.cache / f"teacher-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    publish(folder, lambda new: _train(settings, new, worker), worker.heartbeat)
    return folder


def _train(config: CausalLMConfig, folder: Path, worker: Worker) -> None:
    """Train a model on one rank, always in the same way, and write it."""
    client = CausalLMClient(config, worker.cache)
    model = place(client.model(), worker.device).train()
    optimizer, loss = client.optimizer(model), 0.0
    sampler = Sampler(client.size, client.batch_size, config.init_seed)
    for step in range(config.max_steps):
        worker.heartbeat()
        for group in optimizer.param_groups:
            group["lr"] = client.learning_rate(step, config.max_steps)
        optimizer.zero_grad()
        value = client.loss(model, sampler.rows(step), worker.device)
        value.backward()  # type: ignore[no-untyped-call]
        if config.grad_clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        loss = float(value.detach())
    log.info("teacher trained for %d steps, last loss %.3f", config.max_steps, loss)
    _save(model, config, client.dataset, folder)


def _save(model: nn.Module, config: CausalLMConfig, dataset: Dataset, folder: Path) -> None:
    """Write the model on any rank: `save_pretrained` writes nothing except on rank 0."""
    hf: Any = model
    hf.config.save_pretrained(folder)
    save_weights(model, str(folder / "model.safetensors"), metadata={"format": "pt"})
    save_tokenizer(config, dataset, folder)
