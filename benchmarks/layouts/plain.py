"""The same model on the same layout, as one writes it with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.nn.functional import all_gather
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

from benchmarks.layouts.experts import split_experts
from benchmarks.training.case import Case
from benchmarks.training.contenders import Contender, Windows
from benchmarks.training.problems import Problem
from trainables.causal_lm.task import optimizer_of
from trainables.training.precision import compute_dtype
from trainables.training.throughput import start_memory_peak

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From inputs and targets, int64 [batch, length], to the loss, after its backward pass."""
Prepare = Callable[[nn.Module, torch.device, torch.dtype], tuple[nn.Module, Step]]
"""Spreads a model; returns what has this rank's parameters, and a step."""


def contender(prepare: Prepare, *, splits_batch: bool) -> Contender:
    """A loop with a spread model.

    Args:
        prepare: spreads it.
        splits_batch: whether each rank has other samples.
    """

    def train(
        case: Case, folder: Path, windows: Windows, problem: Problem, device: torch.device
    ) -> None:
        config, rank, size = problem.config, dist.get_rank(), dist.get_world_size()
        dtype = compute_dtype(config.dtype, device)
        model, forward_backward = prepare(problem.model, device, dtype)
        optimizer = optimizer_of(model, config)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, problem.factor)
        sampler = problem.sampler(rank, size) if splits_batch else problem.sampler()
        start_memory_peak(device)
        step, done, losses = 0, False, []
        while not done:
            inputs, targets = problem.batch(sampler.rows(step))
            tokens = inputs["input_ids"].to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
                loss = forward_backward(tokens, targets.to(device, non_blocking=True))
            clip(model, config.grad_clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            losses.append(loss)
            mean = None
            if step % problem.every == 0:
                mean = mean_loss(losses)
                losses.clear()
            done = windows.step(step, mean)

    return train


def mean_loss(losses: list[torch.Tensor]) -> float:
    """Over steps and ranks."""
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return float(mean) / dist.get_world_size()


def clip(model: nn.Module, limit: float) -> None:
    """Clip by the norm of the gradients of all ranks, with one message."""
    cut, whole = [], []
    for name, weight in model.named_parameters():
        if weight.grad is None or name in getattr(model, "repeated", ()):
            continue
        grad: Any = weight.grad
        alone = getattr(model, "own_layers", False) or hasattr(weight, "of_one_rank")
        is_cut = alone or (isinstance(grad, DTensor) and grad.placements != (Replicate(),))
        (cut if is_cut else whole).append(grad.to_local() if isinstance(grad, DTensor) else grad)
    total = nn.utils.get_total_norm(cut).square()
    dist.all_reduce(total)
    norm = (total + nn.utils.get_total_norm(whole).square()).sqrt() if whole else total.sqrt()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for weight in model.parameters():
        if weight.grad is not None:
            given: Any = weight.grad
            (given.to_local() if isinstance(given, DTensor) else given).mul_(scale)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def _step(model: nn.Module, loss_of: Any = cross_entropy) -> Step:
    def step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = loss_of(model(input_ids=tokens, use_cache=False).logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return step


def sharded(
    model: nn.Module, device: torch.device, dtype: torch.dtype, *, compiled: bool = False
) -> tuple[nn.Module, Step]:
    """FSDP2; if compiled, block by block, and the loss, as torchtitan does."""
    hf: Any = model
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    half = dtype if dtype != torch.float32 else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    for number, block in enumerate(hf.model.layers):
        if compiled:
            hf.model.layers[number] = block = torch.compile(block)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return model, _step(model, torch.compile(cross_entropy) if compiled else cross_entropy)


def with_experts(
    model: nn.Module, device: torch.device, dtype: torch.dtype
) -> tuple[nn.Module, Step]:
    """FSDP2, and experts on their ranks."""
    hf: Any = model
    stay = split_experts(model)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in hf.model.layers:
        fully_shard(block, mesh=mesh, ignored_params=stay)
    fully_shard(model, mesh=mesh, reshard_after_forward=False, ignored_params=stay)
    return model, _step(model)


def tensor(model: nn.Module, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Step]:
    """`parallelize_module`: heads, units of the MLP, and the vocabulary."""
    hf: Any = model
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    plan: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        plan[f"model.layers.*.{name}"] = ColwiseParallel()
    for name in ("mlp.gate_proj", "mlp.up_proj"):
        plan[f"model.layers.*.{name}"] = ColwiseParallel()
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        plan[f"model.layers.*.{name}"] = RowwiseParallel()
    parallelize_module(model, mesh, plan, src_data_rank=None)
    hf.model.embed_tokens.weight = hf.lm_head.weight
    return model, _step(model)


class Stage(nn.Module):
    """Some layers of a Llama."""

    own_layers = True

    def __init__(self, model: nn.Module, rank: int, size: int) -> None:
        super().__init__()
        hf: Any = model
        base, count = hf.model, len(hf.model.layers) // size
        self.layers = base.layers[rank * count : (rank + 1) * count]
        self.rotary = base.rotary_emb
        self.embed = base.embed_tokens if rank == 0 else None
        self.norm = base.norm if rank == size - 1 else None
        self.head = hf.lm_head if rank == size - 1 else None
        self.repeated = {"head.weight"}
        self.tied = hf.lm_head.weight if rank in (0, size - 1) else None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = given if self.embed is None else self.embed(given)
        turns = self.rotary(hidden, torch.arange(hidden.shape[1])[None])
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=turns)
        if self.head is not None and self.norm is not None:
            hidden = self.head(self.norm(hidden))
        return hidden


def pipeline(model: nn.Module, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Step]:
    """1F1B with two microbatches for each rank; tied embeddings add their gradients."""
    rank, size = dist.get_rank(), dist.get_world_size()
    part = Stage(model, rank, size)
    stage = PipelineStage(part, rank, size, device)
    schedule = Schedule1F1B(stage, 2 * size, loss_fn=cross_entropy)
    is_last = rank == size - 1

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        given = (tokens,) if rank == 0 else ()
        schedule.step(*given, target=targets if is_last else None, losses=losses)
        if part.tied is not None and part.tied.grad is not None:
            other, peer = torch.empty_like(part.tied.grad), 0 if is_last else size - 1
            pair = [
                dist.P2POp(dist.isend, part.tied.grad, peer),
                dist.P2POp(dist.irecv, other, peer),
            ]
            for work in dist.batch_isend_irecv(pair):
                work.wait()
            part.tied.grad.add_(other)
        # a mean over the ranks is that of the last one
        return torch.stack(losses).mean().detach() * size if losses else torch.zeros(())

    return part, step


def context(model: nn.Module, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Step]:
    """Each rank has a part of each sequence, and gathers keys and values; weights by FSDP2."""
    from transformers import AttentionInterface

    hf: Any = model
    rank, size = dist.get_rank(), dist.get_world_size()

    def attend(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, None]:
        key, value = (torch.cat(all_gather(part.contiguous()), dim=2) for part in (key, value))  # type: ignore[no-untyped-call]
        length = query.shape[2]
        before = torch.ones(length, length * size, dtype=torch.bool).tril(rank * length)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=before)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("plain_context", attend)
    hf.set_attn_implementation("plain_context")
    sharded(model, device, dtype)

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])[None].chunk(size, dim=1)[rank]
        mine = tokens.chunk(size, dim=1)[rank]
        logits = hf(input_ids=mine, position_ids=places, use_cache=False).logits
        loss = cross_entropy(logits, targets.chunk(size, dim=1)[rank])
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return model, step


PLAIN: dict[str, Contender] = {
    "fsdp": contender(sharded, splits_batch=True),
    "compiled": contender(partial(sharded, compiled=True), splits_batch=True),
    "ep": contender(with_experts, splits_batch=True),
    "tp": contender(tensor, splits_batch=False),
    "pp": contender(pipeline, splits_batch=False),
    "cp": contender(context, splits_batch=False),
}
"""By layout. For `ddp` it is the plain loop of `benchmarks.training`."""
