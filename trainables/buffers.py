"""Host memory for copies of a trial's state, used again at the next save.

Fresh memory costs more than the copy into it: the kernel clears every page first. At most one
checkpoint is under way, so what the last one was copied into is free when the next one begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_Kind = tuple["torch.dtype", "torch.Size", bool]


class Buffers:
    """Tensors on the host, of one rank of one trial."""

    def __init__(self) -> None:
        self._free: dict[_Kind, list[torch.Tensor]] = defaultdict(list)
        self._used: dict[_Kind, list[torch.Tensor]] = defaultdict(list)

    @contextmanager
    def reused(self) -> Iterator[None]:
        """In this block `copied` copies into what it gave in the block before, which nobody may
        need any more.
        """
        for kind, tensors in self._used.items():
            self._free[kind] += tensors
        self._used.clear()
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def clear(self) -> None:
        """Give the memory back."""
        self._free.clear()
        self._used.clear()

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the same shape and dtype on the host; pinned for one that is on a GPU."""
        import torch

        kind = tensor.dtype, tensor.shape, tensor.is_cuda
        if self._free[kind]:
            found = self._free[kind].pop()
        else:
            found = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._used[kind].append(found)
        return found


_current: ContextVar[Buffers | None] = ContextVar("buffers", default=None)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the host, contiguous; while a checkpoint is saved, in memory of the one before."""
    import torch

    buffers = _current.get()
    if buffers is None:
        return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
    return buffers.take(tensor).copy_(tensor)
