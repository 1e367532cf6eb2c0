"""The hook of `DistributedDataParallel` that sends gradients as `communication` says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from trainables.parallel.footprint import Traffic
from trainables.training.communication import collectives
from trainables.training.communication.collectives import size_of
from trainables.training.communication.compression import (
    Cast,
    Compression,
    Int8,
    PowerSgd,
    TopK,
)
from trainables.training.communication.config import METRIC_NAMES, CommunicationConfig

_MIB, _GIB = 2**20, 2**30
Algorithm = partial[None]
_MEASURED_EVERY = 10
"""Steps from one that `DistributedDataParallel` measures to the next."""


def algorithm(settings: CommunicationConfig, traffic: Traffic) -> Algorithm:
    """The configured all-reduce over all ranks; takes a flat tensor."""
    found = getattr(collectives, settings.method)
    options = {"group_size": settings.group_size} if settings.method == "hierarchical" else {}
    return partial(found, ranks=range(dist.get_world_size()), traffic=traffic, **options)


def compression(settings: CommunicationConfig, traffic: Traffic) -> Compression:
    """The configured form of gradients."""
    parts = algorithm(settings, traffic), dist.get_world_size(), traffic
    match settings.compress:
        case "powersgd":
            return PowerSgd(*parts, settings.matrix_rank)
        case "topk":
            return TopK(*parts, settings.ratio)
        case "int8":
            return Int8(*parts)
        case kind:
            return Cast(*parts, {"fp16": torch.float16, "bf16": torch.bfloat16}.get(kind))


@dataclass
class _Times:
    """Seconds since the last report, and bytes of the gradients that were averaged."""

    total: float = 0.0
    exposed: float = 0.0
    reduced: int = 0


@dataclass
class _Pending:
    """Times at which all-reduces that run beside the backward pass began and ended."""

    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def close(self, times: _Times) -> None:
        """Count them: from the first to the last moment, and what came after the backward pass."""
        if self.begun:
            times.total += max(self.ended) - self.begun[0]
            times.exposed += max(0.0, max(self.ended) - self.begun[-1])
        self.begun, self.ended = [], []


class GradientExchange:
    """Averages the gradients of one rank with those of the others, and measures it.

    Attributes:
        traffic: what this rank sent since the last report.
    """

    def __init__(self, settings: CommunicationConfig, names: Mapping[nn.Parameter, str]) -> None:
        self.traffic = Traffic()
        self._names, self._settings = names, settings
        self._compression = compression(settings, self.traffic)
        self._times, self._pending = _Times(), _Pending()

    def __call__(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Replace the gradients in a bucket by their means."""
        buffer = bucket.buffer()
        self._times.reduced += size_of(buffer)
        if self._settings.plain and not buffer.is_cuda:
            return self._beside_backward(bucket)
        began = _now(buffer)
        named = zip(bucket.parameters(), bucket.gradients(), strict=True)
        self._compression.average({self._names[p]: gradient for p, gradient in named})  # type: ignore[index]
        seconds = _now(buffer) - began
        self._times.total += seconds
        self._times.exposed += seconds
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _beside_backward(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """As DDP does without a hook, with a clock."""
        ranks, buffer, pending = dist.get_world_size(), bucket.buffer(), self._pending
        if bucket.index() == 0:
            pending.close(self._times)
        self.traffic.add(2 * (ranks - 1) * size_of(buffer) // ranks, 2 * (ranks - 1))
        pending.begun.append(time.perf_counter())
        work = dist.all_reduce(buffer.div_(ranks), async_op=True)

        def end(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            pending.ended.append(time.perf_counter())
            return future.value()[0]

        future: torch.futures.Future[torch.Tensor] = work.get_future().then(end)
        return future

    def metrics(self) -> dict[str, float]:
        """Of this rank since the last call; see `METRIC_NAMES`."""
        self._pending.close(self._times)
        ranks, seconds = dist.get_world_size(), self._times.total
        moved = 2 * (ranks - 1) / ranks * self._times.reduced / _GIB
        values = (
            seconds,
            self._times.exposed,
            self.traffic.bytes / _MIB,
            moved / seconds if seconds else 0.0,
        )
        self._times = _Times()
        self.traffic.bytes = self.traffic.messages = 0
        return dict(zip(METRIC_NAMES, values, strict=True))

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """What this rank keeps from step to step; part of a checkpoint."""
        return self._compression.state

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore `state`."""
        device = next(iter(self._names)).device
        self._compression.state = {name: value.to(device) for name, value in state.items()}


class MeasuredDataParallel(DistributedDataParallel):
    """Knows how its gradients travel, and how long its rank waited for them.

    Attributes:
        exchange: the hook; None if gradients travel as `DistributedDataParallel` sends them.
    """

    exchange: GradientExchange | None = None
    _steps = 0

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Count the passes whose gradients are averaged."""
        self._steps += torch.is_grad_enabled() and self.require_backward_grad_sync
        return super().forward(*inputs, **named)  # type: ignore[no-untyped-call]

    def seconds_exposed(self) -> float:
        """Seconds since the last call for which this rank waited after its backward passes.

        `DistributedDataParallel` measures one step of many.
        """
        measured = self._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        all_ns = float(measured.get("backward_comm_time", 0))
        beside_ns = float(measured.get("backward_compute_comm_overlap_time", 0))
        steps, self._steps = self._steps, 0
        return max(0.0, steps * (all_ns - beside_ns) / 1e9)


def parallel(
    model: nn.Module,
    settings: CommunicationConfig,
    devices: Sequence[torch.device] | None,
    *,
    broadcast_buffers: bool = True,
) -> MeasuredDataParallel:
    """The model with gradients that travel as configured; `exchange` finds the hook again."""
    ddp = MeasuredDataParallel(
        model,
        device_ids=devices,
        gradient_as_bucket_view=True,
        forward_sync_buffers=broadcast_buffers,
        bucket_cap_mb=settings.bucket_mb,
        find_unused_parameters=settings.find_unused_parameters,
        static_graph=settings.static_graph,
    )
    if devices is None:  # on a GPU each measured step waits for the device
        ddp._set_ddp_runtime_logging_sample_rate(_MEASURED_EVERY)  # type: ignore[no-untyped-call]
    if settings.hooked:
        names = {p: name for name, p in model.named_parameters()}
        ddp.exchange = sender = GradientExchange(settings, names)
        ddp.register_comm_hook(None, lambda _, bucket: sender(bucket))
    return ddp


def exchange(model: nn.Module) -> GradientExchange | None:
    """The hook of a model; None if its gradients travel as DDP's do, or it has one rank."""
    return model.exchange if isinstance(model, MeasuredDataParallel) else None


def _now(buffer: torch.Tensor) -> float:
    if buffer.is_cuda:
        torch.cuda.current_stream(buffer.device).synchronize()
    return time.perf_counter()
