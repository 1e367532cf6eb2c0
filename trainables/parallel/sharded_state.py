"""The tensors of a training run in a checkpoint: each rank writes, and reads, its own blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

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


def copy_blocks(tensors: Mapping[str, torch.Tensor], rank: int) -> Blocks:
    """Copy this rank's blocks. Of equal ones, and of whole tensors, the first rank has them."""
    mine = {name: t for name, t in tensors.items() if _writes(t, rank)}
    places = {name: (tuple(t.shape), _box(t)[0]) for name, t in mine.items()}
    copies = copy_to_host([_local(tensor) for tensor in mine.values()])
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
            _local(tensor).copy_(_read(stored[name], tensor))


def split_optimizer(
    optimizer: torch.optim.Optimizer, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The state of an optimizer: what every rank has, and what is spread over them.

    Args:
        names: of its parameters, in the order of its groups.

    Returns:
        As `optimizer.state_dict()`, and the rest by `<key>:<name of the parameter>`.
    """
    state = optimizer.state_dict()
    common: dict[int, dict[str, Any]] = {}
    spread: dict[str, torch.Tensor] = {}
    for index, entry in state["state"].items():
        common[index] = {k: v for k, v in entry.items() if not isinstance(v, DTensor)}
        found = ((k, v) for k, v in entry.items() if isinstance(v, DTensor))
        spread |= {f"{key}:{names[index]}": value for key, value in found}
    return {**state, "state": common}, spread


def join_optimizer(
    state: Mapping[str, Any],
    optimizer: torch.optim.Optimizer,
    names: Sequence[str],
    folder: Path,
) -> dict[str, Any]:
    """The argument of `optimizer.load_state_dict` on this rank.

    Args:
        state: of a checkpoint, from `split_optimizer`, or of a model that was not sharded.
        optimizer: of the model.
        names: of its parameters, in the order of its groups.
        folder: of the checkpoint.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    stored = open_tensors(folder, OPTIMIZER) if has_tensors(folder, OPTIMIZER) else {}
    entries = {i: dict(entry) for i, entry in state["state"].items()}
    for index, entry in entries.items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor) and value.shape == parameters[index].shape:
                entry[key] = _cut(value, parameters[index])
    indices = {name: index for index, name in enumerate(names)}
    for full_name, tensor in stored.items():
        key, _, name = full_name.partition(":")
        index = indices[name]
        like = parameters[index]
        entries.setdefault(index, {})[key] = _as(_read(tensor, like), like)
    return {**state, "state": entries}


def parameter_names(optimizer: torch.optim.Optimizer, model: nn.Module | None) -> list[str]:
    """Names of an optimizer's parameters, in the order of its groups; numbers without a model."""
    every = [p for group in optimizer.param_groups for p in group["params"]]
    if model is None:
        return [str(index) for index in range(len(every))]
    known = {parameter: name for name, parameter in model.named_parameters()}
    return [known[parameter] for parameter in every]


def _writes(tensor: torch.Tensor, rank: int) -> bool:
    if not isinstance(tensor, DTensor):
        return rank == 0
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or (), strict=True)
    first = all(at == 0 for kind, at in places if isinstance(kind, Replicate))
    return first and tensor.to_local().numel() > 0


def _box(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and shape of this rank's block."""
    if not isinstance(tensor, DTensor):
        return (0,) * tensor.ndim, tuple(tensor.shape)
    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return tuple(offset), tuple(shape)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _read(stored: ShardedTensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's block of a stored tensor, whose place is that of `like`."""
    offset, shape = _box(like)
    found = torch.from_numpy(stored.read(offset, shape))
    return found.reshape(-1).view(_DTYPES[stored.dtype]).reshape(shape)


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
        block.to(_local(like).device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
