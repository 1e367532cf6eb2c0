"""What a checkpoint of a training run holds beside its model, and the model in parts of the ranks.

A checkpoint folder holds the model (in the trainable's form, always with `model.safetensors`),
optimizer and learning rate schedule (rank 0), the random generators of each rank, and
`lineage.json`, a digest of the initial weights. Only models of one lineage can be averaged.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from results.checkpoints.shards import MODEL, OPTIMIZER
from results.trial_paths import LINEAGE
from trainables.checkpointing.saver import DeferredWrite
from trainables.checkpointing.tensor_file import tensor_bytes, write_tensors
from trainables.checkpointing.training_state import copy_tree, copy_weights, load_tree
from trainables.parallel.fsdp import free_gathered
from trainables.parallel.sharded_state import (
    Blocks,
    copy_blocks,
    join_optimizer,
    parameter_names,
    split_optimizer,
    unique_state,
)
from trainables.runtime.seeding import rng_state, seed_everything, set_rng_state
from trainables.training.communication.exchange import exchange
from trainables.training.precision import LossScaler
from trainables.worker import Worker

log = logging.getLogger(__name__)


def copy_model(model: nn.Module, folder: Path, worker: Worker, kind: str = MODEL) -> DeferredWrite:
    """Copy this rank's part of a model's weights; returns the function that writes it.

    Of a model that is not sharded, rank 0 writes `<kind>.safetensors`. `load_weights` reads both.

    Args:
        model: the same on all ranks, or of `shard`.
        folder: of the checkpoint.
        worker: this rank.
        kind: begin of the files' names.
    """
    if worker.mesh.is_sharded:
        free_gathered(model)
        blocks = copy_blocks(unique_state(model), worker.mesh)
        return lambda: blocks.write(folder, kind, worker.rank)
    if worker.rank:
        return lambda: None
    weights = copy_weights(model)
    return lambda: write_tensors(folder / f"{kind}.safetensors", weights)


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of names, dtypes, shapes and bytes of a model's weights; tied weights count once."""
    digest = hashlib.sha256()
    seen: set[int] = set()
    for name, tensor in sorted(model.state_dict().items()):
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def read_lineage(folder: Path) -> str:
    """Digest of the initial weights that a checkpoint descends from."""
    return str(json.loads((folder / LINEAGE).read_text())["init"])


def copy_progress(
    folder: Path,
    worker: Worker,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None,
    lineage: str,
    parallel_model: nn.Module | None = None,
    scaler: LossScaler | None = None,
) -> DeferredWrite:
    """Copy this rank's part of a checkpoint, except the model.

    Args:
        parallel_model: of `data_parallel`; what compression left out is in the checkpoint.

    Returns:
        A function that writes the copy. A save function returns it, so that training goes on.
    """
    if parallel_model is not None:
        free_gathered(parallel_model)
    write_generators = _copy_generators(folder, worker)
    common, spread = split_optimizer(optimizer, _names(optimizer, parallel_model), worker.mesh)
    blocks: Blocks = copy_blocks(spread, worker.mesh)
    state: dict[str, Any] = {}
    if worker.rank == 0:
        state = {"optimizer": common, "layout": str(worker.mesh.layout)}
        if scheduler is not None:
            state["scheduler"] = scheduler.state_dict()
        if scaler is not None:
            state["scaler"] = scaler.state_dict()
    progress = copy_tree(state)
    sender = exchange(parallel_model) if parallel_model is not None else None
    left_out = copy_tree(sender.state) if sender and sender.state else None

    def write() -> None:
        write_generators()
        blocks.write(folder, OPTIMIZER, worker.rank)
        if left_out is not None:
            left_out.write(folder, f"communication_{worker.rank}")
        if worker.rank == 0:
            progress.write(folder, "progress")
            (folder / LINEAGE).write_text(json.dumps({"init": lineage}))

    return write


def load_progress(
    folder: Path,
    worker: Worker,
    step: int,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None,
    parallel_model: nn.Module | None = None,
    scaler: LossScaler | None = None,
) -> None:
    """Restore optimizer, scheduler, loss scaler and this rank's generators from a checkpoint.

    Hyperparameters of `optimizer` that differ from the checkpoint's are kept: a trial that copied
    another trial's weights has its own.
    """
    state = load_tree(folder, "progress")
    configured = [_settings(group) for group in optimizer.param_groups]
    names = _names(optimizer, parallel_model)
    optimizer.load_state_dict(
        join_optimizer(state["optimizer"], optimizer, names, folder, worker.mesh)
    )
    _note_layout(str(state.get("layout", "")), worker)
    if scheduler is not None:
        scheduler.load_state_dict(state["scheduler"])
    if scaler is not None:
        scaler.load_state_dict(state.get("scaler", {}))
    for group, settings in zip(optimizer.param_groups, configured, strict=True):
        _change(group, settings)
    if scheduler is not None:
        _follow(scheduler, optimizer.param_groups)
    sender = exchange(parallel_model) if parallel_model is not None else None
    if sender and (folder / f"communication_{worker.rank}.json").exists():
        sender.load(load_tree(folder, f"communication_{worker.rank}"))
    if (folder / f"{_rng_file(worker)}.json").exists():
        set_rng_state(load_tree(folder, _rng_file(worker)), worker.device)
    else:  # resumed with more workers than before
        seed_everything(worker.seed + step, worker.mesh.dp_rank)
    worker.loaded()


def copy_losses(folder: Path, worker: Worker, losses: Sequence[torch.Tensor]) -> DeferredWrite:
    """Copy the losses of this rank since a report, which the next report counts."""
    text = json.dumps(torch.stack([*losses]).cpu().tolist())  # waits for the device

    def write() -> None:
        _losses_file(folder, worker).write_text(text)

    return write


def load_losses(folder: Path, worker: Worker) -> list[torch.Tensor]:
    """The losses of this rank in a checkpoint; none if it is one of a report."""
    file = _losses_file(folder, worker)
    values = json.loads(file.read_text()) if file.is_file() else []
    return list(torch.tensor(values, dtype=torch.float32, device=worker.device))


def _losses_file(folder: Path, worker: Worker) -> Path:
    return folder / f"losses_{worker.rank}.json"


def _copy_generators(folder: Path, worker: Worker) -> DeferredWrite:
    """Copy the random generators, of one of the ranks that share them."""
    if not worker.mesh.is_metric_rank:
        return lambda: None
    generators, stem = copy_tree(rng_state(worker.device)), _rng_file(worker)
    return lambda: generators.write(folder, stem)


def _rng_file(worker: Worker) -> str:
    """Stem of the file of random generators, which ranks with the same samples share."""
    return f"rng_{worker.mesh.dp_rank}"


def _names(optimizer: torch.optim.Optimizer, parallel_model: nn.Module | None) -> list[str]:
    """Names of the parameters, the same for each layout."""
    if isinstance(parallel_model, DistributedDataParallel):
        return parameter_names(optimizer, parallel_model.module)
    return parameter_names(optimizer, parallel_model)


def _note_layout(before: str, worker: Worker) -> None:
    """Log that a checkpoint is of another layout; those of older versions do not say theirs."""
    now = str(worker.mesh.layout)
    if worker.rank == 0 and before not in ("", now):
        log.warning(
            "resumed on another layout: %s, the checkpoint is of %s; the curve goes on up to"
            " rounding, not bit for bit",
            now,
            before,
        )


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters with which an optimizer's group was created: `lr` before any schedule."""
    made = {k: v for k, v in group.items() if k not in ("params", "initial_lr")}
    return {**made, "lr": group.get("initial_lr", group["lr"])}


def _follow(
    scheduler: torch.optim.lr_scheduler.LRScheduler, groups: Sequence[dict[str, Any]]
) -> None:
    """Give a schedule, which may be another one now, the peaks of groups, and them its rates."""
    scheduler.base_lrs = [group["initial_lr"] for group in groups]
    for group, factor in zip(groups, getattr(scheduler, "lr_lambdas", ()), strict=False):
        group["lr"] = group["initial_lr"] * factor(scheduler.last_epoch)


def _change(group: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Change a group's hyperparameters; the learning rate keeps its place in the schedule."""
    before = _settings(group)["lr"]
    now = group["lr"] if settings["lr"] == before else group["lr"] * settings["lr"] / before
    group.update({**settings, "lr": now})
    if "initial_lr" in group:
        group["initial_lr"] = settings["lr"]
