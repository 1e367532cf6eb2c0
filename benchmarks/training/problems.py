"""What the plain loop and the Trainer train: model, batches and optimizer of a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.training.case import Case
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.task import optimizer_of
from trainables.client import Rows
from trainables.data.images.dataset import prepare
from trainables.data.tokenizer import wrap_bpe
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import new_classifier
from trainables.image_classifier.task import ImageTask
from trainables.registry import resolve
from trainables.sft.config import SFTConfig
from trainables.training.cross_entropy import IGNORED
from trainables.training.data_sampler import Sampler
from trainables.training.schedules import lr_factor, schedule_of
from trainables.training.task import open_task

Inputs = tuple[dict[str, Any], torch.Tensor]
"""Arguments of the model, and the targets of its logits; those that do not count are IGNORED."""


@dataclass(frozen=True)
class Problem:
    """A trial, as somebody else trains it.

    Attributes:
        config: of the trial.
        every: optimizer steps from one report of the trial to the next.
        batch: the inputs for rows of the train split, on the CPU.
        sizes: tokens of each row of the train split, or 1 for an image.
        evaluate: what the trial evaluates at each report, if that is much.
        tokenizer: of text.
    """

    config: Any
    every: int
    model: nn.Module
    batch: Callable[[Rows], Inputs]
    sizes: Rows
    optimizer: torch.optim.Optimizer
    factor: Callable[[int], float]
    evaluate: Callable[[], object] = lambda: None
    tokenizer: Any = None

    def sampler(self, rank: int = 0, size: int = 1) -> Sampler:
        """The order in which the trial takes the rows."""
        return Sampler(len(self.sizes), self.config.batch_size, 0, rank, size)


def problem_of(case: Case, folder: Path, device: torch.device) -> Problem:
    """The problem of a case, with its data in a folder."""
    config: Any = resolve(case.trainable).Config.model_validate(case.full_config(folder))
    if isinstance(config, ImageClassifierConfig):
        return _images(config, folder, device)
    return _text(config, folder, device)


def _text(config: CausalLMConfig, folder: Path, device: torch.device) -> Problem:
    task: Any = open_task(config, folder / "cache")
    if isinstance(config, SFTConfig):
        lengths = task.dataset.lengths(Split.TRAIN)
        counted: Any = task.dataset.counted(Split.TRAIN)
    else:
        lengths, counted = None, None
    dataset = task.dataset
    rows = dataset.sequences(Split.TRAIN)
    sizes = np.full(len(rows), config.sequence_length) if lengths is None else lengths

    def batch(taken: Rows) -> Inputs:
        width = rows.shape[1] if lengths is None else int(lengths[taken].max())
        tokens = torch.from_numpy(rows[taken, :width].astype(np.int64))
        targets = tokens[:, 1:].contiguous()
        if counted is not None:
            known = torch.from_numpy(np.array(counted[taken, : width - 1]))
            targets = targets.masked_fill(~known, IGNORED)
        return {"input_ids": tokens[:, :-1], "use_cache": False}, targets

    model = new_model(config, dataset).to(device).train()
    optimizer, factor = optimizer_of(model, config), schedule_of(config, config.max_steps)
    problem = Problem(config, config.eval_every, model, batch, sizes, optimizer, factor)
    return replace(problem, tokenizer=wrap_bpe(dataset.tokenizer_file, config.sequence_length))


def _images(config: ImageClassifierConfig, folder: Path, device: torch.device) -> Problem:
    data = prepare(config.data, folder / "cache")
    classifier = new_classifier(config, data).to(device).train()
    if device.type == "cuda":
        classifier.to(memory_format=torch.channels_last)
    pixels, labels = data.pixels(Split.TRAIN), torch.from_numpy(data.labels(Split.TRAIN))

    def batch(taken: Rows) -> Inputs:
        normalised = classifier.normalised(torch.from_numpy(pixels[taken]))
        return {"pixel_values": normalised}, labels[taken]

    def evaluate() -> None:
        classifier.eval()
        with torch.no_grad():
            held = torch.from_numpy(np.array(data.pixels(Split.SELECTION)))
            found = classifier(classifier.normalised(held))
            F.cross_entropy(found, torch.from_numpy(data.labels(Split.SELECTION)))
        classifier.train()

    steps = len(labels) // config.batch_size
    factor = lr_factor(config.schedule, 0, 0, steps * config.epochs)
    optimizer = ImageTask(config, data).optimizer(classifier.model)
    ones = np.ones(len(labels), np.int64)
    return Problem(config, steps, classifier.model, batch, ones, optimizer, factor, evaluate)
