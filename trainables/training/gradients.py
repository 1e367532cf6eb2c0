"""Gradients of data-parallel ranks: exchanged once per step, and added up over micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from trainables.client import Rows
from trainables.training.communication.config import EXPOSED, CommunicationConfig
from trainables.training.communication.exchange import MeasuredDataParallel, parallel
from trainables.worker import Worker


def data_parallel(
    model: nn.Module,
    worker: Worker,
    communication: CommunicationConfig | None = None,
    *,
    broadcast_buffers: bool = True,
) -> nn.Module:
    """The model for the training step: with several ranks, gradients are averaged over them.

    Args:
        communication: how gradients travel; by default as `DistributedDataParallel` sends them.
        broadcast_buffers: whether every step begins with rank 0's buffers (statistics of
            BatchNorm). If not, each rank has its own until `mean_buffers`.
    """
    if worker.world_size == 1 or worker.mesh.is_sharded:  # then the model averages them itself
        return model
    devices = [worker.device] if worker.device.type == "cuda" else None
    settings = communication or CommunicationConfig()
    return parallel(model, settings, devices, broadcast_buffers=broadcast_buffers)


def communication_metrics(model: nn.Module, worker: Worker) -> dict[str, float]:
    """What a model of `data_parallel` sent since the last call; empty if it is not measured.

    The time for which this rank waited for gradients is counted, see `Worker.times`.
    """
    if not isinstance(model, MeasuredDataParallel):
        return {}
    metrics = model.exchange.metrics() if model.exchange else {}
    worker.times.waited(metrics[EXPOSED] if metrics else model.seconds_exposed())
    return metrics


def mean_buffers(model: nn.Module, worker: Worker) -> None:
    """Replace the float buffers of each rank (statistics of BatchNorm) by their mean over all."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if worker.world_size == 1 or not buffers:
        return
    flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
    dist.all_reduce(flat)
    parts = (flat / worker.world_size).split([buffer.numel() for buffer in buffers])  # type: ignore[no-untyped-call]
    for buffer, part in zip(buffers, parts, strict=True):
        buffer.copy_(part.view_as(buffer))


def backward(
    model: nn.Module,
    rows: Rows,
    most: int | None,
    loss: Callable[[Rows], torch.Tensor],
    weight: Callable[[Rows], float] | None = None,
    scale: Callable[[torch.Tensor], torch.Tensor] = lambda loss: loss,
) -> torch.Tensor:
    """Add the gradients of the mean loss over rows, some rows at a time.

    The gradients equal those of one pass over all rows, up to rounding.

    Args:
        model: of `data_parallel`; the ranks exchange gradients once.
        rows: samples of this rank's share, int64 [samples].
        most: largest number of samples per pass; None: all.
        loss: mean loss over the given samples, a scalar.
        weight: of that mean in the result; None: the fraction of `rows` that the samples are. It is
            needed if a mean is over parts of samples, such as the tokens of their answers.
        scale: of a `LossScaler`; the gradients are those of the scaled loss.

    Returns:
        The weighted sum of the means, by default the mean loss over all rows; detached.
    """
    parts = np.split(rows, range(most, len(rows), most)) if most else [rows]
    shares = []
    for part in parts:
        with nullcontext() if part is parts[-1] else _unsynchronised(model):
            share = loss(part) * (weight(part) if weight else len(part) / len(rows))
            scale(share).backward()  # type: ignore[no-untyped-call]
        shares.append(share.detach())
    return torch.stack(shares).sum()


def _unsynchronised(model: nn.Module) -> AbstractContextManager[None]:
    many: Any = model
    return many.no_sync() if hasattr(model, "no_sync") else nullcontext()
