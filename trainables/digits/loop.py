"""Training and evaluation of a digits network: the shortest complete trainable."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import update_bn

from trainables.base import Split
from trainables.checkpointing.saver import DeferredWrite, SaveFn, in_parallel
from trainables.checkpointing.tensor_file import write_tensors
from trainables.checkpointing.training_state import copy_weights
from trainables.client import Rows
from trainables.common.data_sampler import Sampler, shares
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
from trainables.digits.config import DigitsConfig
from trainables.digits.network import network
from trainables.job import Answer
from trainables.worker import Worker

WEIGHTS = "model.safetensors"
EVAL_BATCH = 128
SHARE = 0.2
"""Fraction of the data in the selection split, and in the test split."""

Images = tuple[torch.Tensor, torch.Tensor]
"""Pixels [images, 64] float32 in 0..1, and labels [images] int64."""


def train(config: DigitsConfig, worker: Worker) -> None:
    """Train one trial on this rank."""
    worker.log_dataset(_fingerprint())
    model = make_network(config)
    lineage = weights_digest(model)
    found = worker.resume()
    if found is not None:
        load_model(model, found.folder / WEIGHTS)
        lineage = read_lineage(found.folder)
    model.to(worker.device)
    optimizer = make_optimizer(model, config)
    ddp = data_parallel(model, worker, config.communication)
    if found is not None:
        load_progress(found.folder, worker, found.step, optimizer, None, ddp)
    save = _saver(model, optimizer, worker, lineage, ddp)
    for epoch in range(found.step + 1 if found else 1, config.epochs + 1):
        train_loss = train_epoch(epoch, ddp, optimizer, config, worker)
        mean_buffers(model, worker)  # statistics of BatchNorm
        with worker.times.of("evaluation"):
            scores = score(model, Split.SELECTION, worker)
        sent = communication_metrics(ddp, worker)
        seen = {"samples_seen": float(epoch * samples_per_epoch(config))}
        metrics = {**scores, "train_loss": train_loss, **seen, **sent}
        final = epoch == config.epochs
        answer = worker.report(step=epoch, metrics=metrics, checkpoint=save, final=final)
        if answer is not Answer.CONTINUE:
            break


def samples_per_epoch(config: DigitsConfig) -> int:
    """Images of an epoch's whole batches, of all ranks together."""
    images = len(images_of(Split.TRAIN)[1])
    return max(1, images // config.batch_size) * config.batch_size


def train_epoch(
    epoch: int,
    ddp: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: DigitsConfig,
    worker: Worker,
) -> float:
    """Train for one epoch (from 1) on this rank's share; returns the mean loss of its batches."""
    images, labels = images_of(Split.TRAIN)
    sampler = Sampler(len(labels), config.batch_size, worker.seed, worker.rank, worker.world_size)
    steps = samples_per_epoch(config) // config.batch_size
    losses = []

    def mean_loss(rows: Rows) -> torch.Tensor:
        at = torch.from_numpy(rows)
        return F.cross_entropy(ddp(images[at].to(worker.device)), labels[at].to(worker.device))

    for step in range((epoch - 1) * steps, epoch * steps):
        optimizer.zero_grad()
        losses.append(backward(ddp, sampler.rows(step), config.micro_batch_size, mean_loss))
        optimizer.step()
    return float(torch.stack(losses).double().mean())


def evaluate(config: DigitsConfig, weights: Path, split: Split, cache: Path) -> dict[str, float]:
    """`accuracy` (0 to 1) and `loss` (nats per image) of weights on a split."""
    return score(load_network(config, weights), split)


def examples(
    config: DigitsConfig, weights: Path, split: Split, cache: Path
) -> dict[str, list[float]]:
    """`accuracy` (0 or 1) and `loss` (nats) of each image of a split."""
    model = load_network(config, weights).eval()
    images, labels = images_of(split)
    with torch.inference_mode():
        logits = model(images)
        losses = F.cross_entropy(logits, labels, reduction="none")
    correct = (logits.argmax(1) == labels).double()
    return {"accuracy": correct.tolist(), "loss": losses.double().tolist()}


def initial(config: DigitsConfig, target: Path, cache: Path) -> str:
    """Write the weights of step 0; returns their lineage."""
    model = make_network(config)
    save_model(model, str(target / WEIGHTS))
    return weights_digest(model)


def digest(config: DigitsConfig, weights: Path, cache: Path) -> str:
    """Lineage of models that start from the weights in a folder."""
    return weights_digest(load_network(config, weights))


def recalibrate(config: DigitsConfig, weights: Path, cache: Path) -> None:
    """Recompute BatchNorm's statistics over the train split."""
    if not config.batch_norm:
        return
    model = load_network(config, weights)
    update_bn(torch.split(images_of(Split.TRAIN)[0], EVAL_BATCH), model)
    stored = load_file(weights / WEIGHTS)  # replaces the statistics only, in their dtype
    stored |= {name: value.to(stored[name].dtype) for name, value in model.named_buffers()}
    save_file(stored, weights / WEIGHTS)


def _saver(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    worker: Worker,
    lineage: str,
    ddp: nn.Module,
) -> SaveFn:
    def save(folder: Path) -> DeferredWrite:
        progress = copy_progress(folder, worker, optimizer, None, lineage, ddp)
        if worker.rank:
            return progress
        weights = copy_weights(model)
        return in_parallel(lambda: write_tensors(folder / WEIGHTS, weights), progress)

    return save


def score(model: nn.Module, split: Split, worker: Worker | None = None) -> dict[str, float]:
    """`accuracy` and `loss` over a split. With a worker, the ranks share it and get the same."""
    device = worker.device if worker else torch.device("cpu")
    rank, world_size = (worker.rank, worker.world_size) if worker else (0, 1)
    images, labels = images_of(split)
    sums = {"correct": 0.0, "loss": 0.0, "count": 0.0}
    model.eval()
    with torch.inference_mode():
        for part in shares(len(labels), EVAL_BATCH, rank, world_size):
            logits, target = model(images[part].to(device)), labels[part].to(device)
            sums["correct"] += float((logits.argmax(1) == target).sum())
            sums["loss"] += float(F.cross_entropy(logits, target, reduction="sum"))
            sums["count"] += len(target)
    model.train()
    if worker is not None:
        sums = worker.sum(sums)
    return {"accuracy": sums["correct"] / sums["count"], "loss": sums["loss"] / sums["count"]}


def make_network(config: DigitsConfig) -> nn.Module:
    """The network with the weights of step 0."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.init_seed)
        return network(config.hidden_units, config.num_layers, config.dropout, config.batch_norm)


def load_network(config: DigitsConfig, weights: Path) -> nn.Module:
    """The network with the weights of a folder that holds `model.safetensors`."""
    model = make_network(config)
    load_model(model, weights / WEIGHTS)
    return model


def make_optimizer(model: nn.Module, config: DigitsConfig) -> torch.optim.Optimizer:
    """AdamW or SGD, as configured."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=(config.momentum, 0.999),
        weight_decay=config.weight_decay,
    )


@cache
def images_of(split: Split) -> Images:
    """A split of the data: stratified by label, the same on every machine."""
    pixels, labels = load_digits(return_X_y=True)
    rest, test, y_rest, y_test = train_test_split(
        pixels, labels, test_size=SHARE, random_state=0, stratify=labels
    )
    fit, select, y_fit, y_select = train_test_split(
        rest, y_rest, test_size=SHARE / (1 - SHARE), random_state=0, stratify=y_rest
    )
    x, y = {
        Split.TRAIN: (fit, y_fit),
        Split.SELECTION: (select, y_select),
        Split.TEST: (test, y_test),
    }[split]
    return torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)


@cache
def _fingerprint() -> str:
    """SHA-256 of all images and labels, in order."""
    digest = hashlib.sha256()
    for split in Split:
        for part in images_of(split):
            digest.update(part.numpy().tobytes())
    return digest.hexdigest()
