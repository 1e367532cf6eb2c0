"""The place of a rank in the layout of its trial, and the process groups of the layout's axes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from search_spaces.spec.layout import Layout

if TYPE_CHECKING:
    import torch
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
    _device_mesh: DeviceMesh | None = field(default=None, init=False)

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
    def leads(self) -> bool:
        """Whether the metrics of this rank count: one rank speaks for those with its samples."""
        return self.coordinates["tp"] == 0

    @property
    def data_mesh(self) -> DeviceMesh:
        """The data-parallel axes of this rank; all of them together ask for it."""
        names = tuple(n for n in self.device_mesh.mesh_dim_names or () if n.startswith("dp_"))
        return self.device_mesh[names]

    @property
    def device_mesh(self) -> DeviceMesh:
        """The ranks as torch knows them; every rank asks for it together with the others."""
        if self._device_mesh is None:
            import torch
            from torch.distributed.device_mesh import init_device_mesh

            kind = self.device.type if self.device else "cpu"
            if kind == "cuda":  # torch takes the current device of the process
                torch.cuda.set_device(self.device)
                torch.cuda.init()  # type: ignore[no-untyped-call]  # or torch chooses another one
            used = {name: size for name, size in self.layout.sizes.items() if size > 1}
            if self.layout.dp_replicate > 1:  # FSDP2 takes both axes
                used = {n: s for n, s in self.layout.sizes.items() if n in used or n == "dp_shard"}
            self._device_mesh = init_device_mesh(
                kind, tuple(used.values()), mesh_dim_names=tuple(used)
            )
        return self._device_mesh

    def close(self) -> None:
        """Free the groups of the axes, and what torch remembers of them: a trial is over."""
        if self._device_mesh is None:
            return
        import torch.distributed as dist
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        for group in self._device_mesh.get_all_groups():
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)
        # its entries name groups, and the next trial has other ones
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
        self._device_mesh = None


ALONE = Mesh(Layout(), 0)
"""The only rank of its layout."""
