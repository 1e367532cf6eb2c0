"""Exchange of the clients' updates of a round between the ranks that trained them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from trainables.worker import Worker

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Update:
    """A client's tensors after its local steps, on the CPU, and the mean loss of those steps."""

    state: State
    loss: float


def gather(
    mine: Mapping[int, Update], owners: Sequence[int], like: State, worker: Worker
) -> list[Update]:
    """The updates of all clients of a round, in the round's order, the same on every rank.

    Each rank then holds the models of all clients of the round.

    Args:
        mine: updates of this rank, by their position in the round.
        owners: rank of each position.
        like: names, shapes and dtypes of the tensors.
    """
    if worker.world_size == 1:
        return [mine[position] for position in range(len(owners))]
    return [_broadcast(mine.get(i), like, owner, worker) for i, owner in enumerate(owners)]


def _broadcast(update: Update | None, like: State, owner: int, worker: Worker) -> Update:
    """One broadcast of all tensors in float64, which represents all our dtypes exactly."""
    size = sum(tensor.numel() for tensor in like.values()) + 1
    if update is None:
        flat = torch.empty(size, dtype=torch.float64)
    else:
        parts = [tensor.reshape(-1).double() for tensor in update.state.values()]
        flat = torch.cat([*parts, torch.tensor([update.loss], dtype=torch.float64)])
    flat = flat.to(worker.device)
    dist.broadcast(flat, owner)
    flat = flat.cpu()
    state, at = {}, 0
    for name, tensor in like.items():
        values = flat[at : at + tensor.numel()]
        state[name] = values.reshape(tensor.shape).to(tensor.dtype)
        at += tensor.numel()
    return Update(state, float(flat[-1]))
