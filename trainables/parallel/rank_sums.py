"""Sums and means of values over the ranks of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from trainables.parallel.mesh import Mesh

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class RankSums:
    """What the ranks of a trial compute together; each call is made by all of them.

    Attributes:
        device: of this rank.
        world_size: number of ranks.
        mesh: of the ranks.
    """

    device: torch.device
    world_size: int
    mesh: Mesh

    def mean(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Mean over the data-parallel ranks of each value, in float64; the same on every rank."""
        if self.world_size == 1:
            return {k: float(v) for k, v in metrics.items()}
        return {k: v / self.mesh.dp_size for k, v in self.sum(metrics).items()}

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum over the data-parallel ranks of each value, in float64; the same on every rank.

        Of ranks with the same samples (`cp`, `tp`), the values of one count.
        """
        counts = self.mesh.is_metric_rank
        return self.sum_all({k: v if counts else 0.0 for k, v in values.items()})

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """As `sum`, of each value of a float64 tensor, on the CPU."""
        if self.world_size == 1:
            return values
        import torch.distributed as dist

        total = (values * self.mesh.is_metric_rank).to(self.device)
        dist.all_reduce(total)
        return total.cpu()

    def from_rank_zero(self, value: T) -> T:
        """The value of rank 0, on every rank."""
        if self.world_size == 1:
            return value
        import torch.distributed as dist

        shared = [value]
        dist.broadcast_object_list(shared, src=0, device=self.device)
        return shared[0]

    def sum_all(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sum over all ranks of each value, in float64; the same on every rank."""
        names = sorted(values)
        if self.world_size == 1:
            return {k: float(values[k]) for k in names}
        import torch
        import torch.distributed as dist

        total = torch.tensor([values[k] for k in names], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.sum_all({"": 0.0})
