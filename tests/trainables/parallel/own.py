"""Classes of a user that follow a layout, with public names only: see docs/layouts.md."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainables import (
    Answer,
    DeferredWrite,
    Sampler,
    Split,
    Trainable,
    TrainableConfig,
    Worker,
    copy_model,
    copy_progress,
    data_parallel,
    in_parallel,
    load_progress,
    load_weights,
    shard,
    weights_digest,
)

ROWS = 40


class OwnConfig(TrainableConfig):
    """Settings."""

    batch_size: int = 8
    steps: int = 5


class Own(Trainable[OwnConfig]):
    """Fits a small network with a tied matrix and odd sizes to numbers."""

    Config = OwnConfig
    axes: ClassVar[tuple[str, ...]] = ("dp_replicate", "dp_shard")
    plan: ClassVar[dict[str, str]] = {}

    @staticmethod
    def network() -> Network:
        """The model at step 0."""
        return Network()

    def train(self, config: OwnConfig, worker: Worker) -> None:
        model, found = self.network(), worker.resume()
        lineage = weights_digest(model)
        if found is not None:
            load_weights(model, found.folder)
        shard(model, model.blocks, worker.mesh, plan=self.plan)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        parallel = data_parallel(model, worker)
        if found is not None:
            load_progress(found.folder, worker, found.step, optimizer, None, parallel)
        mesh = worker.mesh
        sampler = Sampler(ROWS, config.batch_size, worker.seed, mesh.dp_rank, mesh.dp_size)
        data = numbers()

        def save(folder: Path) -> DeferredWrite:
            progress = copy_progress(folder, worker, optimizer, None, lineage, parallel)
            return in_parallel(copy_model(model, folder, worker), progress)

        for step in range(found.step + 1 if found else 1, config.steps + 1):
            loss = error(parallel, torch.from_numpy(data[sampler.rows(step - 1)]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics, final = {"loss": loss.item()}, step == config.steps
            answer = worker.report(step=step, metrics=metrics, checkpoint=save, final=final)
            if answer is not Answer.CONTINUE:
                break

    def evaluate(
        self, config: OwnConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        model = self.network()
        load_weights(model, weights)
        with torch.no_grad():
            return {"loss": error(model, torch.from_numpy(numbers())).item()}


class Wide(Own):
    """A network whose blocks widen the numbers, so that ranks share their layers."""

    axes = ("dp_replicate", "dp_shard", "tp")
    plan: ClassVar[dict[str, str]] = {"blocks.*.0": "colwise", "blocks.*.2": "rowwise"}

    @staticmethod
    def network() -> Network:
        """The model at step 0."""
        return Network(widen=8)


def numbers() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((ROWS, 6), dtype=np.float32)


def error(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(x) - x.flip(1)).square().mean()
    return loss


class Network(nn.Module):
    """Two blocks between a matrix and its transpose; sizes that ranks cannot share equally."""

    def __init__(self, widen: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.matrix = nn.Parameter(torch.randn(6, 7) / 3)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(7, widen), nn.Tanh(), nn.Linear(widen, 7))
                if widen
                else nn.Linear(7, 7)
                for _ in range(2)
            )
            self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Numbers [rows, 6] to numbers of the same shape."""
        self.seen += 1
        hidden = x @ self.matrix
        for block in self.blocks:
            hidden = hidden + torch.tanh(block(hidden))
        result: torch.Tensor = self.scale * hidden @ self.matrix.T
        return result
