"""The place of a rank in the layout of its trial, its process groups, and sums over them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from search_spaces.layout import Layout

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


@dataclass
class Mesh:
    """One rank of a layout.

    Attributes:
        layout: of the trial; its product is the number of ranks.
        rank: of this process.
        device: of this rank; None where a mesh has no use for it.
    """

    layout: Layout
    rank: int
    device: torch.device | None = None
    repeated: list[torch.nn.Parameter] = field(default_factory=list, init=False)
    """Weights of this rank that an earlier stage of its pipeline has too."""
    _device_mesh: DeviceMesh | None = field(default=None, init=False)
    _expert_mesh: DeviceMesh | None = field(default=None, init=False)
    _groups: dict[str, ProcessGroup] = field(default_factory=dict, init=False)

    @property
    def dp_rank(self) -> int:
        """Which part of each batch this rank has."""
        at = self.coordinates
        return at["dp_replicate"] * self.layout.dp_shard + at["dp_shard"]

    @property
    def dp_size(self) -> int:
        """Number of parts of a batch."""
        return self.layout.data_parallel

    @property
    def is_sharded(self) -> bool:
        """Whether this rank has a part of the weights only."""
        return self.layout.shares_model

    @property
    def coordinates(self) -> dict[str, int]:
        """The place of this rank on each axis."""
        found, rest = {}, self.rank
        for name, size in reversed(self.layout.sizes.items()):
            rest, found[name] = divmod(rest, size)
        return found

    @property
    def is_metric_rank(self) -> bool:
        """Whether the metrics of this rank count: one rank speaks for those with its samples."""
        at = self.coordinates
        last = at["pp"] == self.layout.pp - 1  # it has the loss
        return last and at["cp"] == at["tp"] == 0

    @property
    def data_mesh(self) -> DeviceMesh | None:
        """The axes over which gradients are averaged, and weights cut, of this rank; None: no axis.

        Its `dp_shard` has the ranks of `dp_shard` and of `cp`. All ranks together ask for it.
        """
        names = tuple(n for n in self.device_mesh.mesh_dim_names or () if n.startswith("dp_"))
        return self.device_mesh[names] if names else None

    @property
    def weight_coordinates(self) -> dict[str, int]:
        """The place of this rank on each axis of `device_mesh`, and 0 on others."""
        at = self.coordinates
        return {**at, "dp_shard": at["dp_shard"] * self.layout.cp + at["cp"], "cp": 0}

    def group(self, axis: str) -> ProcessGroup:
        """The ranks that differ from this one on an axis only; all ranks together ask for it."""
        if axis not in self._groups:
            import torch
            import torch.distributed as dist

            sizes = list(self.layout.sizes.values())
            ranks = torch.arange(math.prod(sizes)).reshape(sizes)
            place = list(self.layout.sizes).index(axis)
            lines = ranks.movedim(place, -1).reshape(-1, sizes[place]).tolist()
            self._groups[axis], _ = dist.new_subgroups_by_enumeration(lines)  # type: ignore[no-untyped-call]
        return self._groups[axis]

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks as torch knows them; every rank asks for it together with the others."""
        if self._device_mesh is None:
            sizes = {**self.layout.sizes, "dp_shard": self.layout.weight_parts, "cp": 1}
            used = {name for name, size in sizes.items() if size > 1}
            if self.layout.dp_replicate > 1:  # FSDP2 takes both axes
                used.add("dp_shard")
            shape = {name: size for name, size in sizes.items() if name in used}
            self._device_mesh = self._made(shape)
        return self._device_mesh

    @property
    def expert_mesh(self) -> DeviceMesh:
        """The same ranks, by the parts of experts that they have.

        Its axes are `pp` and `dp_replicate` if there are several, `dp_shard` (ranks that
        gather experts from each other), `ep`, and `tp` of size 1. All ranks ask for it together.
        """
        if self._expert_mesh is None:
            layout = self.layout
            shape = {"dp_shard": layout.expert_parts // layout.ep, "ep": layout.ep, "tp": 1}
            outer = {n: layout.sizes[n] for n in ("pp", "dp_replicate") if layout.sizes[n] > 1}
            self._expert_mesh = self._made(outer | shape)
        return self._expert_mesh

    def _made(self, shape: dict[str, int]) -> DeviceMesh:
        import torch
        from torch.distributed.device_mesh import init_device_mesh

        kind = self.device.type if self.device else "cpu"
        if kind == "cuda":  # torch takes the current device of the process
            torch.cuda.set_device(self.device)
            torch.cuda.init()  # type: ignore[no-untyped-call]  # or torch chooses another one
        return init_device_mesh(kind, tuple(shape.values()), mesh_dim_names=tuple(shape))

    def make_groups(self) -> None:
        """Make the groups that a language model uses; all ranks together."""
        if self.is_sharded:
            _ = self.device_mesh
        if self.layout.ep * self.layout.tp > 1:
            _ = self.expert_mesh
        if self.layout.cp > 1:
            self.group("cp")

    @property
    def groups(self) -> list[tuple[str, ProcessGroup]]:
        """The axis of each group of this rank that exists; `dp_shard` has the ranks of `cp` too."""
        meshes = [mesh for mesh in (self._device_mesh, self._expert_mesh) if mesh is not None]
        made = [(n, m.get_group(n)) for m in meshes for n in m.mesh_dim_names or ()]
        return [*made, *self._groups.items()]

    def close(self) -> None:
        """Free the groups of the axes, and what torch remembers of them: a trial is over."""
        if self._device_mesh is None:
            return
        import torch.distributed as dist
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        meshes = [mesh for mesh in (self._device_mesh, self._expert_mesh) if mesh is not None]
        groups = [group for mesh in meshes for group in mesh.get_all_groups()]
        for group in (*groups, *self._groups.values()):
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)
        # its entries name groups, and the next trial has other ones
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
        self._device_mesh = self._expert_mesh = None
        self._groups.clear()
        self.repeated.clear()


ALONE = Mesh(Layout(), 0)
"""The only rank of its layout."""


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
