"""The clients' updates on all ranks, and the server's optimizer: from their average to new weights.

Adaptive federated optimization: Reddi et al. 2021 (arXiv 2003.00295); momentum: Hsu et al. 2019
(1909.06335); DiLoCo's outer Nesterov step: Douillard et al. 2023 (2311.08105). Arithmetic and state
are float64. Only trained tensors take such steps: an adaptive one would make a variance negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

from trainables.federated.config import FederatedConfig
from trainables.worker import Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


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


class Server:
    """An optimizer whose update direction points from the weights to the clients' average.

    Attributes:
        state: momentum `m` and squares `v` of each tensor, by `<name>.m` and `<name>.v`.
    """

    def __init__(self, config: FederatedConfig, state: dict[str, Floats] | None = None) -> None:
        self._config = config
        self.state: dict[str, Floats] = dict(state or {})

    def step(self, name: str, weights: Floats, average: Floats) -> Floats:
        """The next weights of a tensor."""
        config, rate = self._config, self._config.rate
        if config.server == "fedavg" and rate == 1.0:
            return average
        delta = average - weights
        match config.server:
            case "fedavg":
                return weights + rate * delta
            case "fedavgm":
                return weights + rate * self._momentum(name, delta)
            case "diloco":
                step = delta + config.server_momentum * self._momentum(name, delta)
                return weights + rate * step
        beta = config.server_momentum
        momentum = self._last(name, "m", delta, 0.0) * beta + (1 - beta) * delta
        squares = self._squares(self._last(name, "v", delta, config.server_tau**2), delta * delta)
        self.state[f"{name}.m"], self.state[f"{name}.v"] = momentum, squares
        return weights + rate * momentum / (np.sqrt(squares) + config.server_tau)

    def _momentum(self, name: str, delta: Floats) -> Floats:
        found = self._last(name, "m", delta, 0.0) * self._config.server_momentum + delta
        self.state[f"{name}.m"] = found
        return found

    def _squares(self, before: Floats, now: Floats) -> Floats:
        beta = self._config.server_beta2
        if self._config.server == "fedadagrad":
            return before + now
        if self._config.server == "fedyogi":
            return before - (1 - beta) * now * np.sign(before - now)
        return beta * before + (1 - beta) * now

    def _last(self, name: str, kind: str, like: Floats, start: float) -> Floats:
        found = self.state.get(f"{name}.{kind}")
        return np.full_like(like, start) if found is None else found
