"""Tasks of the search benchmark: precomputed or synthetic learning curves."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_POOL = 1000


class Task(Protocol):
    """A space, and the learning curve of each configuration.

    Attributes:
        family: `lcbench`, `hours`, `misleading`, `slow`, `noisy` or `sizes`.
        name: within the family.
        space: as in a sweep file.
        epochs: length of a full training.
    """

    family: str
    name: str
    space: ClassVar[dict[str, Any]]
    epochs: int

    def curves(self, configs: list[dict[str, Any]]) -> Array:
        """(configs, epochs), the validation error after each epoch; lower is better."""
        ...

    def expected(self, configs: list[dict[str, Any]]) -> Array:
        """The same without noise: what regret is computed from."""
        return self.curves(configs)

    def seconds(self, configs: list[dict[str, Any]]) -> Array:
        """(configs,), of an epoch."""
        return np.ones(len(configs))


def scale(task: Task) -> tuple[float, float]:
    """Errors with regret 0 and 1: the best known, and the median of random full trainings."""
    rng = np.random.default_rng(0)
    best = task.expected([draw(task.space, rng) for _ in range(_POOL)]).min(axis=1)
    return float(best.min()), float(np.median(best))


def draw(space: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A random configuration."""
    return {name: _value(*next(iter(form.items())), rng) for name, form in space.items()}


def with_prior(task: Task, quality: str) -> dict[str, Any]:
    """The space of a task with a prior for each parameter.

    Args:
        task: of the benchmark.
        quality: `good`: of the best 2 % of random configurations, in the middle of them; `bad`: the
            worst of them.
    """
    rng = np.random.default_rng(1)
    configs = [draw(task.space, rng) for _ in range(_POOL)]
    order = np.argsort(task.expected(configs)[:, -1])
    prior = configs[order[_POOL // 100] if quality == "good" else order[-1]]
    return {name: {**form, "prior": prior[name]} for name, form in task.space.items()}


def _value(kind: str, bounds: list[float], rng: np.random.Generator) -> float | int:
    low, high = bounds
    if "log" in kind:
        found = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        found = rng.uniform(low, high)
    return int(found) if kind.endswith("randint") else float(found)


class LCBench(Task):
    """One OpenML task of the LCBench surrogate of YAHPO Gym (Pfisterer et al. 2022; data of Zimmer
    et al. 2021, "Auto-PyTorch Tabular"): multilayer perceptrons, 7 hyperparameters, epochs 2-52.
    """

    family = "lcbench"
    epochs = 51
    space: ClassVar[dict[str, Any]] = {
        "batch_size": {"lograndint": [16, 513]},
        "learning_rate": {"loguniform": [1e-4, 1e-1]},
        "momentum": {"uniform": [0.1, 0.99]},
        "weight_decay": {"uniform": [1e-5, 0.1]},
        "num_layers": {"randint": [1, 6]},
        "max_units": {"lograndint": [64, 1025]},
        "max_dropout": {"uniform": [0.0, 1.0]},
    }

    def __init__(self, name: str, number: int, session: Any) -> None:
        self.name, self._number, self._session = name, number, session

    def curves(self, configs: list[dict[str, Any]]) -> Array:
        """100 less the validation accuracy in percent."""
        return 100.0 - self._predicted(configs, range(2, 2 + self.epochs), 1)

    def _predicted(
        self, configs: list[dict[str, Any]], epochs: Sequence[int], column: int
    ) -> Array:
        """(configs, epochs), a column of the surrogate's output."""
        rows = [
            [epoch, *(config[name] for name in self.space)]
            for config in configs
            for epoch in epochs
        ]
        given = {
            "x_cat": np.full((len(rows), 1), self._number, dtype=np.int32),
            "x_cont": np.array(rows, dtype=np.float32),
        }
        names = [i.name for i in self._session.get_inputs()]
        out = self._session.run(None, {n: given[n] for n in names})[0]
        return np.asarray(out[:, column].reshape(len(configs), len(epochs)).astype(float))


class Hours(LCBench):
    """The same, where a trial takes the time that it took."""

    family = "hours"

    def seconds(self, configs: list[dict[str, Any]]) -> Array:
        """(configs,), of an epoch."""
        return np.maximum(self._predicted(configs, [52], 0)[:, 0], 1e-3) / 52


def lcbench(folder: Path, kind: type[LCBench] = LCBench) -> list[Task]:
    """Every task of the surrogate in a folder, in the order of its encoding."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    numbers = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"]
    return [kind(n, i, session) for n, i in numbers.items() if n.isdigit()]


class Misleading(Task):
    """A synthetic task in which low rungs mislead: configurations that learn fast end badly, and
    the good region is small. The error falls from 1 to `floor`, with a long time constant if the
    floor is low.
    """

    family = "misleading"
    epochs = 27
    space: ClassVar[dict[str, Any]] = {f"x{i}": {"uniform": [0.0, 1.0]} for i in range(4)}

    def __init__(self, number: int) -> None:
        self.name = str(number)
        rng = np.random.default_rng([17, number])
        self.needle, self._trap = rng.uniform(0.1, 0.9, (2, len(self.space)))
        self._width = rng.uniform(0.12, 0.25)

    def curves(self, configs: list[dict[str, Any]]) -> Array:
        """(configs, epochs), between 0 and 1."""
        x = np.array([[c[name] for name in self.space] for c in configs])
        near = np.exp(-((x - self.needle) ** 2).sum(1) / (2 * self._width**2))
        trapped = np.exp(-((x - self._trap) ** 2).sum(1) / (2 * 0.4**2))
        floor = 0.6 - 0.5 * near - 0.1 * trapped
        constant = 2.0 + 14.0 * near
        epoch = np.arange(1, self.epochs + 1)
        curve = floor[:, None] + (1 - floor)[:, None] * np.exp(-epoch / constant[:, None])
        noise = np.sin(1e4 * x.sum(1)[:, None] * epoch) * 0.005
        return np.asarray(curve + noise)


class Slow(Task):
    """A synthetic task with a broad slow region, as of low learning rates: `x0` far from 1 needs
    longer and ends better, down to an optimum. The other parameters matter less.

    Args:
        number: of the task.
        noise: standard deviation of a report, as a share of the standard deviation of random
            configurations at the first epoch.
    """

    epochs = 27
    space: ClassVar[dict[str, Any]] = {f"x{i}": {"uniform": [0.0, 1.0]} for i in range(4)}

    def __init__(self, number: int, noise: float = 0.0) -> None:
        self.name, self.family = str(number), "noisy" if noise else "slow"
        self._rng = np.random.default_rng([23, number])
        self._best = np.append(self._rng.uniform(0.1, 0.35), self._rng.uniform(0.2, 0.8, 3))
        self._slowness = self._rng.uniform(8.0, 14.0)
        self._noise = noise and noise * float(self.expected(self._random(200))[:, 0].std())

    def _random(self, count: int) -> list[dict[str, Any]]:
        return [draw(self.space, self._rng) for _ in range(count)]

    def expected(self, configs: list[dict[str, Any]]) -> Array:
        """(configs, epochs), between 0 and 1."""
        x = np.array([[c[name] for name in self.space] for c in configs])
        away = np.abs(x - self._best)
        floor = 0.1 + 0.5 * away[:, 0] + 0.15 * (away[:, 1:] ** 2).sum(1)
        constant = 1.5 + self._slowness * (1 - x[:, 0]) ** 2
        epoch = np.arange(1, self.epochs + 1)
        return np.asarray(
            floor[:, None] + (1 - floor)[:, None] * np.exp(-epoch / constant[:, None])
        )

    def curves(self, configs: list[dict[str, Any]]) -> Array:
        """(configs, epochs); the noise of a configuration is always the same."""
        seeds = [[int(c[name] * 2**32) for name in self.space] for c in configs]
        noise = [np.random.default_rng(seed).normal(size=self.epochs) for seed in seeds]
        return self.expected(configs) + self._noise * np.array(noise)


def misleading(count: int) -> list[Task]:
    """Tasks of the first synthetic family."""
    return [Misleading(i) for i in range(count)]


def slow(count: int, noise: float = 0.0) -> list[Task]:
    """Tasks of the second one."""
    return [Slow(i, noise) for i in range(count)]


class Sizes(Task):
    """The space of `search_spaces/llm_sizes.yaml`, where the best models cost most: a loss by
    scaling laws of weights and tokens, with a penalty of the learning rate, whose best value falls
    with the width and depth. Seconds are those of the arithmetic at 50 GFLOP/s.
    """

    family = "sizes"
    epochs = 27
    space: ClassVar[dict[str, Any]] = {
        "hidden_size": {"lograndint": [32, 129]},
        "num_layers": {"randint": [1, 5]},
        "sequence_length": {"lograndint": [64, 257]},
        "learning_rate": {"loguniform": [3e-4, 3e-2]},
    }

    def __init__(self, number: int) -> None:
        self.name = str(number)
        rng = np.random.default_rng([5, number])
        self._rate, self._capacity = 10 ** rng.uniform(-2.7, -2.0), rng.uniform(0.2, 0.45)
        self._sharpness, self._depth = rng.uniform(0.1, 0.3), rng.uniform(0.0, 0.5)
        self._steps = 120 / self.epochs

    def curves(self, configs: list[dict[str, Any]]) -> Array:
        """(configs, epochs), nats per token."""
        width, layers, length, rate = self._columns(configs)
        steps = self._steps * np.arange(1, self.epochs + 1)
        best = self._rate * (64 / width) * (2 / layers) ** self._depth
        wrong = self._sharpness * np.log(rate / best) ** 2
        size = self._capacity * (1e5 / self._weights(width, layers)) ** 0.3
        data = 1.5 * (5e4 / (16 * length[:, None] * steps)) ** 0.3
        return np.asarray(1.5 + size[:, None] + data + wrong[:, None] * (1 + 2 / steps))

    def seconds(self, configs: list[dict[str, Any]]) -> Array:
        """(configs,), of an epoch."""
        width, layers, length, _ = self._columns(configs)
        operations = 6 * self._weights(width, layers) + 12 * layers * width * length
        return np.asarray(self._steps * (0.01 + operations * 16 * length / 5e10))

    def _columns(self, configs: list[dict[str, Any]]) -> Array:
        return np.array([[float(c[name]) for c in configs] for name in self.space])

    def _weights(self, width: Array, layers: Array) -> Array:
        return np.asarray(12 * layers * width**2 + 512 * width)


def sizes(count: int) -> list[Task]:
    """Tasks of the third one."""
    return [Sizes(i) for i in range(count)]
