"""Chooses the samples of a step by (seed, step) alone.

Therefore checkpoints need no data position, and a resumed run, even with another number of workers,
continues with exactly the samples it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from trainables.client import Rows
from trainables.parallel.mesh import ALONE

if TYPE_CHECKING:
    from trainables.worker import Worker


@dataclass
class Sampler:
    """Batches of one endless stream; each epoch is a new permutation of all samples.

    Attributes:
        size: number of samples in the split.
        batch: samples per optimizer step, of all ranks together.

    Raises:
        ValueError: the ranks cannot share a batch equally.
    """

    size: int
    batch: int
    seed: int
    rank: int = 0
    world_size: int = 1
    _epochs: dict[int, Rows] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.batch % self.world_size:
            raise ValueError(
                f"batch_size {self.batch} is for all workers together and must divide by their"
                f" number, {self.world_size}"
            )

    def rows(self, step: int) -> Rows:
        """Samples of this rank at a step (from 0), int64 [batch / world_size]."""
        share = self.batch // self.world_size
        return self.batch_rows(step)[self.rank * share : (self.rank + 1) * share]

    def batch_rows(self, step: int) -> Rows:
        """Samples of all ranks at a step (from 0), int64 [batch]."""
        every = np.arange(step * self.batch, (step + 1) * self.batch, dtype=np.int64)
        epochs, offsets = np.divmod(every, self.size)
        self._epochs = {e: order for e, order in self._epochs.items() if e >= epochs[0]}
        return np.concatenate(
            [self._permutation(int(e))[offsets[epochs == e]] for e in np.unique(epochs)]
        )

    def _permutation(self, epoch: int) -> Rows:
        if epoch not in self._epochs:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.size)
            self._epochs[epoch] = order.astype(np.int64)
        return self._epochs[epoch]


def shares(size: int, chunk: int, rank: int, world_size: int) -> list[slice]:
    """This rank's chunks of a split that is evaluated in order, `chunk` rows at a time.

    The chunks are the same for any number of ranks, so metrics do not depend on it.
    """
    every = [slice(i, min(i + chunk, size)) for i in range(0, size, chunk)]
    return every[rank::world_size]


def shares_in_step(size: int, chunk: int, worker: Worker | None) -> tuple[list[slice], int]:
    """This rank's `shares`, and how many of them count.

    Where the ranks share a model, all of them compute equally often: a rank that has fewer chunks
    gets one more that does not count.

    Args:
        size: rows of the split.
        chunk: rows at a time.
        worker: this rank; None: there are no others.
    """
    mesh = worker.mesh if worker else ALONE
    mine = shares(size, chunk, mesh.dp_rank, mesh.dp_size)
    more = len(shares(size, chunk, 0, mesh.dp_size)) - len(mine) if mesh.is_sharded else 0
    return [*mine, *[slice(0, min(chunk, size))] * more], len(mine)


def to_device(values: npt.NDArray[Any] | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Values on a device, integers of arrays as int64; the copy to a GPU does not wait for it."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        values = values.astype(np.int64)
    tensor = torch.as_tensor(values)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
