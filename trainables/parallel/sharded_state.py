"""Tensors of which ranks have parts: in checkpoints each rank has its own blocks; gradients are
clipped together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from results.checkpoints.shards import (
    MODEL,
    OPTIMIZER,
    Place,
    ShardedTensor,
    has_tensors,
    open_tensors,
    parts_metadata,
    shard_file,
)
from search_spaces.errors import UserError
from trainables.checkpointing.host_buffers import copy_to_host
from trainables.checkpointing.tensor_file import DTYPE_NAMES, write_tensors
from trainables.parallel.mesh import ALONE, Mesh

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True)
class Blocks:
    """A copy of the blocks of tensors that one rank writes, on the host."""

    tensors: dict[str, torch.Tensor]
    places: Mapping[str, Place]

    def write(self, folder: Path, kind: str, rank: int) -> None:
        """Write them into a checkpoint; a rank without blocks writes no file."""
        if self.tensors:
            file = shard_file(folder, kind, rank)
            file.parent.mkdir(exist_ok=True)
            write_tensors(file, self.tensors, parts_metadata(self.places))


def copy_blocks(tensors: Mapping[str, torch.Tensor], mesh: Mesh) -> Blocks:
    """Copy this rank's blocks. Of equal ones, and of whole tensors, the first rank has them."""
    mine = {name: t for name, t in tensors.items() if is_first(t, mesh)}
    places = {name: (tuple(t.shape), _box(t)[0]) for name, t in mine.items()}
    copies = copy_to_host([local_part(tensor) for tensor in mine.values()])
    return Blocks(dict(zip(mine, copies, strict=True)), places)


def unique_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of a model; of tied ones the first name only."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def load_weights(model: nn.Module, folder: Path, kind: str = MODEL) -> None:
    """Read this rank's part of a model from a checkpoint, in shards or whole.

    Args:
        model: of which all ranks, or this one, have the same class and shapes.
        folder: of the checkpoint.
        kind: begin of the names of its files.

    Raises:
        UserError: the weights are of another model.
    """
    stored, wanted = open_tensors(folder, kind), unique_state(model)
    wrong = [n for n, t in wanted.items() if n not in stored or stored[n].shape != tuple(t.shape)]
    if wrong or stored.keys() - wanted.keys():
        name = min([*wrong, *(stored.keys() - wanted.keys())])
        raise UserError(f"{folder}: its weights are of another model ({name})")
    with torch.no_grad():
        for name, tensor in wanted.items():
            local_part(tensor).copy_(_read(stored[name], tensor))


def split_optimizer(
    optimizer: torch.optim.Optimizer, names: Sequence[str], mesh: Mesh
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The state of an optimizer: what rank 0 writes, and what all ranks write.

    Args:
        names: of its parameters, in the order of its groups.
        mesh: of this rank.

    Returns:
        As `optimizer.state_dict()`, with names in the place of numbers, and, where ranks share the
        model, its tensors by `<key>:<name of the parameter>`.
    """
    state = optimizer.state_dict()
    common = {names[index]: dict(entry) for index, entry in state["state"].items()}
    spread: dict[str, torch.Tensor] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    repeated = {id(weight) for weight in mesh.repeated}
    known = dict(zip(names, parameters, strict=True))
    for name, entry in common.items() if mesh.is_sharded else ():
        for key in [k for k, v in entry.items() if isinstance(v, torch.Tensor)]:
            value = entry.pop(key)
            if id(known[name]) not in repeated:
                spread[f"{key}:{name}"] = value
    return {**state, "state": common}, spread


def join_optimizer(
    state: Mapping[str, Any],
    optimizer: torch.optim.Optimizer,
    names: Sequence[str],
    folder: Path,
    mesh: Mesh = ALONE,
) -> dict[str, Any]:
    """The argument of `optimizer.load_state_dict` on this rank.

    Args:
        state: of a checkpoint, from `split_optimizer`, or of a model that was not sharded.
        optimizer: of the model.
        names: of its parameters, in the order of its groups.
        folder: of the checkpoint.
        mesh: of this rank; without `pp`, it has parts of all parameters.

    Raises:
        KeyError: a name is unknown, or, with `pp`, a parameter has no state.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    stored = open_tensors(folder, OPTIMIZER) if has_tensors(folder, OPTIMIZER) else {}
    indices = {name: index for index, name in enumerate(names)}
    all_here = mesh.layout.pp == 1
    # version 0.1 has numbers, in the same order
    entries = {
        n if isinstance(n, int) else indices[n]: dict(entry)
        for n, entry in state["state"].items()
        if all_here or n in indices
    }
    own = optimizer.state_dict()["param_groups"]  # other ranks may have other parameters
    for index, entry in entries.items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor) and value.shape == parameters[index].shape:
                entry[key] = _cut(value, parameters[index])
    for full_name, tensor in stored.items():
        key, _, name = full_name.partition(":")
        if not all_here and name not in indices:
            continue  # of another stage
        index = indices[name]
        like = parameters[index]
        value = _as(_read(tensor, like), like) if tensor.shape == like.shape else _read(tensor)
        entries.setdefault(index, {})[key] = value
    lost = [name for name, index in indices.items() if index not in entries]
    if lost and not all_here:
        raise KeyError(f"{folder}: no state of the optimizer for {lost[0]}")
    groups = [
        {**there, "params": here["params"]}
        for here, there in zip(own, state["param_groups"], strict=True)
    ]
    return {**state, "state": entries, "param_groups": groups}


def parameter_names(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> list[str]:
    """Names of an optimizer's parameters, in the order of its groups; numbers without a model."""
    every = [p for group in optimizer.param_groups for p in group["params"]]
    if model is None:
        return [str(index) for index in range(len(every))]
    known = {parameter: name for name, parameter in model.named_parameters()}
    return [known[parameter] for parameter in every]


def is_first(tensor: torch.Tensor, mesh: Mesh) -> bool:
    """Whether this rank has a block of a tensor, and is the first of the ranks that have it."""
    if any(tensor is weight for weight in mesh.repeated):
        return False
    cut = {"pp"}  # each stage has other weights
    if isinstance(tensor, DTensor):
        names = tensor.device_mesh.mesh_dim_names or ()
        kinds = zip(names, tensor.placements, strict=True)
        cut |= {name for name, kind in kinds if not isinstance(kind, Replicate)}
        if "ep" in names:  # experts: `Mesh.expert_mesh` has other axes for these ranks
            cut |= {"dp_shard", "tp"}
    first = all(at == 0 for name, at in mesh.weight_coordinates.items() if name not in cut)
    return first and local_part(tensor).numel() > 0


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, mesh: Mesh) -> torch.Tensor:
    """Scale gradients so that their L2 norm over all ranks is at most `limit`.

    Args:
        parameters: of this rank; those without a gradient are left out.
        limit: infinite: gradients are not changed.
        mesh: of this rank.

    Returns:
        The norm before, the same on all ranks; it does not wait for a GPU.
    """
    if not mesh.is_sharded:
        return nn.utils.clip_grad_norm_(parameters, limit)
    weights = [p for p in parameters if p.grad is not None]
    for weight in weights:
        sum_gradient(weight)
    mine = [local_part(p.grad) for p in weights if p.grad is not None and is_first(p, mesh)]
    total = nn.utils.get_total_norm(mine).to(mesh.device).square()
    dist.all_reduce(total)
    norm = total.sqrt()
    if math.isfinite(limit):
        scale = (limit / (norm + 1e-6)).clamp(max=1.0)  # as torch does
        for weight in weights:
            if weight.grad is not None:
                part = local_part(weight.grad)
                part.mul_(scale.to(part.device))  # on the host with `cpu_offload`
    return norm


def sum_gradient(weight: nn.Parameter) -> None:
    """Sum a gradient of which each rank of `tp` has a summand; each keeps its part of the sum."""
    grad = weight.grad
    if not isinstance(grad, DTensor) or not isinstance(weight, DTensor):
        return
    if grad.placements != weight.placements:
        weight.grad = grad.redistribute(placements=weight.placements)


def _box(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and shape of this rank's block."""
    if not isinstance(tensor, DTensor):
        return (0,) * tensor.ndim, tuple(tensor.shape)
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    return tuple(chunk.offsets), tuple(chunk.sizes)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a tensor, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _read(stored: ShardedTensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """This rank's block of a stored tensor, whose place is that of `like`; None: all of it."""
    box = () if like is None else _box(like)
    block = torch.from_numpy(stored.read(*box)).reshape(-1).view(_DTYPES[stored.dtype])
    return block.reshape(box[1] if box else stored.shape)


def _cut(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's block of a whole tensor, in the form of `like`."""
    offset, shape = _box(like)
    block = whole[tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))]
    return _as(block.contiguous(), like)


def _as(block: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A block as a tensor of the same distribution as `like`."""
    if not isinstance(like, DTensor):
        return block
    return DTensor.from_local(
        block.to(local_part(like).device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
