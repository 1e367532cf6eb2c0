"""The server's optimizer: from the clients' average to the next weights.

Adaptive federated optimization: Reddi et al. 2021 (arXiv 2003.00295); momentum: Hsu et al. 2019
(1909.06335); DiLoCo's outer Nesterov step: Douillard et al. 2023 (2311.08105). Arithmetic and state
are float64. Only trained tensors take such steps: an adaptive one would make a variance negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainables.federated.config import FederatedConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


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
