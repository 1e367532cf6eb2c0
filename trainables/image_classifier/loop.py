"""Training of an image classifier: read `train` from top to bottom."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from results.checkpoints.shards import has_tensors
from trainables.base import Split
from trainables.checkpointing.saver import DeferredWrite, in_parallel
from trainables.checkpointing.training_state import copy_weights
from trainables.client import Rows
from trainables.common.data_sampler import Sampler
from trainables.common.schedules import lr_factor
from trainables.common.sharded_model import copy_model
from trainables.common.throughput import memory_peak, start_memory_peak
from trainables.common.training import (
    backward,
    communication_metrics,
    copy_progress,
    data_parallel,
    load_progress,
    mean_buffers,
    read_lineage,
    weights_digest,
)
from trainables.data.images.dataset import Images, prepare
from trainables.image_classifier.augment import Draws, augment, blank, draw, mixup_indices
from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.evaluation import image_losses, logits, score
from trainables.image_classifier.model import Classifier, load_classifier, new_classifier
from trainables.image_classifier.stages import make_pipeline
from trainables.job import Answer
from trainables.parallel.fsdp import blocks_of, free_gathered, shard
from trainables.parallel.sharded_state import clip_gradients, load_weights
from trainables.worker import Worker

TRAINED = "trained"
"""Begin of the names of files with the weights that the optimizer changes, where
`model.safetensors` has their moving average."""


def train(config: ImageClassifierConfig, worker: Worker) -> None:
    """Train one trial on this rank."""
    images = _agreed(prepare(config.data, worker.cache, worker.heartbeat), worker)
    worker.log_dataset(images.meta["content"])
    run = _start(config, images, worker)
    for epoch in range(run.epoch + 1, config.epochs + 1):
        train_loss = run.advance(epoch)
        metrics = {**run.metrics(), "train_loss": train_loss}
        final = epoch == config.epochs
        answer = worker.report(step=epoch, metrics=metrics, checkpoint=run.save, final=final)
        if answer is not Answer.CONTINUE:
            break


@dataclass
class _Run:
    """The training state of a trial on this rank."""

    config: ImageClassifierConfig
    worker: Worker
    images: Images
    classifier: Classifier
    lineage: str
    epoch: int = 0
    averaged: Classifier | None = None
    """The moving average of the weights, with `ema_decay`."""
    _since: float = field(default_factory=time.perf_counter, init=False)

    def __post_init__(self) -> None:
        config, worker = self.config, self.worker
        self.pixels = self.images.pixels(Split.TRAIN)
        self.labels = torch.from_numpy(self.images.labels(Split.TRAIN))
        self.sampler = Sampler(
            len(self.labels),
            config.batch_size,
            worker.seed,
            worker.mesh.dp_rank,
            worker.mesh.dp_size,
        )
        self.steps = max(1, len(self.labels) // config.batch_size)
        share = config.batch_size // worker.mesh.dp_size
        first = worker.mesh.dp_rank * share
        self.share = slice(first, first + share)
        if config.ema_decay is not None:
            self.averaged = place(self.averaged or deepcopy(self.classifier), config, worker)
        place(self.classifier, config, worker)
        self.optimizer = make_optimizer(self.classifier, config)
        self.scheduler = lr_schedule(self.optimizer, config, self.steps * config.epochs)
        self.ddp = data_parallel(
            self.classifier, worker, config.communication, broadcast_buffers=False
        )
        start_memory_peak(worker.device)

    @property
    def evaluated(self) -> Classifier:
        """The model whose weights are reported on and saved as the trial's result."""
        return self.averaged or self.classifier

    def advance(self, epoch: int) -> float:
        """Train for one epoch (from 1); returns the mean loss of this rank's images."""
        losses = []
        for step in range((epoch - 1) * self.steps, epoch * self.steps):
            losses.append(self._step(step))
            self.worker.heartbeat()
        self.epoch = epoch
        return float(torch.stack(losses).double().mean())  # waits for the device

    def metrics(self) -> dict[str, float]:
        """Metrics of a report, after an epoch."""
        device = self.worker.device
        seconds = time.perf_counter() - self._since
        for model in (self.classifier, self.averaged):
            if model is not None:
                mean_buffers(model.model, self.worker)
        with self.worker.times.of("evaluation"):
            scores = score(self.evaluated, self.images, Split.SELECTION, self.config, self.worker)
            free_gathered(self.evaluated)
        memory = {"peak_memory_gib": memory_peak(device)} if device.type == "cuda" else {}
        self._since = time.perf_counter()
        return {
            **scores,
            "learning_rate": float(self.scheduler.get_last_lr()[0]),
            "samples_seen": float(self.epoch * self.steps * self.config.batch_size),
            "images_per_second": self.steps * self.config.batch_size / seconds,
            **memory,
            **communication_metrics(self.ddp, self.worker),
        }

    def save(self, folder: Path) -> DeferredWrite:
        """Copy this rank's part of a checkpoint; returns the function that writes it."""
        progress = copy_progress(
            folder, self.worker, self.optimizer, self.scheduler, self.lineage, self.ddp
        )
        if self.worker.mesh.is_sharded:
            return in_parallel(*self._copy_parts(folder), progress)
        if self.worker.rank:
            return progress
        evaluated, weights = self.evaluated, copy_weights(self.evaluated.model)
        if evaluated is self.classifier:
            return in_parallel(lambda: evaluated.save(folder, weights), progress)
        trained = copy_model(self.classifier.model, folder, self.worker, TRAINED)
        return in_parallel(lambda: evaluated.save(folder, weights), trained, progress)

    def _copy_parts(self, folder: Path) -> list[DeferredWrite]:
        """Copy this rank's part of sharded models; returns the functions that write it."""
        evaluated, worker = self.evaluated, self.worker
        writes = [copy_model(evaluated.model, folder, worker)]
        if evaluated is not self.classifier:
            writes.append(copy_model(self.classifier.model, folder, worker, TRAINED))
        if worker.rank == 0:
            writes.append(lambda: evaluated.save_description(folder))
        return writes

    def _step(self, step: int) -> torch.Tensor:
        """One optimizer step; returns the mean loss of this rank's images, detached."""
        config, seed = self.config, self.worker.seed
        draws = draw(config, seed, step, self.share)
        with self.worker.times.of("data"):
            pixels, labels = self._batch(self.sampler.rows(step), draws)
            others = None
            if config.mixup:
                rows = mixup_indices(len(self.labels), config.batch_size, seed, step, self.share)
                other_pixels, others = self._batch(rows, draws)
                pixels = draws.keep * pixels + (1 - draws.keep) * other_pixels

        self.optimizer.zero_grad()
        loss = self._backward(pixels, labels, others, draws.keep)
        if config.grad_clip is not None:
            clip_gradients(self.classifier.parameters(), config.grad_clip, self.worker.mesh)
        self.optimizer.step()
        self.scheduler.step()
        if self.averaged is not None and config.ema_decay is not None:
            decay = min(config.ema_decay, (1 + step) / (10 + step))  # forgets the first weights
            follow(self.averaged.model, self.classifier.model, decay)
        return loss

    def _backward(
        self,
        pixels: torch.Tensor,
        labels: torch.Tensor,
        others: torch.Tensor | None,
        keep: float,
    ) -> torch.Tensor:
        """Add the gradients of the mean loss of this rank's images, which is returned."""
        config, count = self.config, len(labels)
        for pipeline in self.classifier.pipeline:
            more = {"targets": labels}
            if others is not None:
                more |= {"others": others, "keep": pixels.new_full((count,), keep)}
            return pipeline.backward(pixels, 1 / count, **more)

        def mean_loss(places: Rows) -> torch.Tensor:
            at = torch.from_numpy(places).to(pixels.device)
            found = logits(self.ddp, pixels[at], config)
            mixed = None if others is None else others[at]
            return image_losses(found, labels[at], config, mixed, keep).mean()

        return backward(self.ddp, np.arange(count), config.micro_batch_size, mean_loss)

    def _batch(self, rows: Rows, draws: Draws) -> tuple[torch.Tensor, torch.Tensor]:
        """Augmented and normalised images of the train split with their labels, on the device."""
        images, labels = torch.from_numpy(self.pixels[rows]), self.labels[rows]
        device = self.worker.device
        if device.type == "cuda":
            images, labels = images.pin_memory(), labels.pin_memory()
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        pixels = self.classifier.normalised(augment(images, draws, self.config))
        return blank(pixels, draws, self.config.cutout), labels


def _start(config: ImageClassifierConfig, images: Images, worker: Worker) -> _Run:
    found = worker.resume()
    if found is None:
        classifier = new_classifier(config, images)
        return _Run(config, worker, images, classifier, weights_digest(classifier.model))
    classifier, averaged = load_classifier(config, images, found.folder), None
    if config.ema_decay is not None:
        averaged = deepcopy(classifier)
    if has_tensors(found.folder, TRAINED):
        load_weights(classifier.model, found.folder, TRAINED)
    lineage = read_lineage(found.folder)
    run = _Run(config, worker, images, classifier, lineage, found.step, averaged)
    load_progress(found.folder, worker, found.step, run.optimizer, run.scheduler, run.ddp)
    return run


def _agreed(images: Images, worker: Worker) -> Images:
    mine = float(int(images.meta["content"][:12], 16))
    if worker.mean({"key": mine})["key"] != mine:
        raise ValueError(
            "the workers read different images; give data.path on storage that all of them share"
        )
    return images


def place(classifier: Classifier, config: ImageClassifierConfig, worker: Worker) -> Classifier:
    """Move a model, or this rank's part, to its device, in the fastest memory format."""
    if worker.mesh.layout.pp > 1:
        make_pipeline(classifier, config, worker.mesh)
    elif worker.mesh.is_sharded:
        shard(classifier.model, blocks_of(classifier.model), worker.mesh)
    classifier.to(worker.device).train()
    if worker.device.type == "cuda" and not worker.mesh.is_sharded:
        classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


def follow(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move an average of weights and buffers towards a model's: `decay` is the part that stays."""
    with torch.no_grad():
        pairs = zip(average.state_dict().values(), model.state_dict().values(), strict=True)
        for mine, theirs in pairs:
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - decay)
            else:
                mine.copy_(theirs)


def make_optimizer(model: nn.Module, config: ImageClassifierConfig) -> torch.optim.Optimizer:
    """SGD or AdamW, with weight decay for matrices and kernels, not for gains and biases."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    rate, momentum = config.learning_rate, config.momentum
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=momentum > 0)
    return torch.optim.AdamW(groups, lr=rate, betas=(momentum, config.beta2))


def lr_schedule(
    optimizer: torch.optim.Optimizer, config: ImageClassifierConfig, total: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """The configured learning rate by the number of steps done, out of `total`."""
    warmup, decay = round(config.warmup_fraction * total), round(config.decay_fraction * total)
    factor = lr_factor(config.schedule, warmup, decay, total)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
