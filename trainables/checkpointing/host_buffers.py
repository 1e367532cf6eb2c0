"""Copies of a trial's state on the host, by several threads, into memory that is used again.

Fresh memory costs more than the copy into it: the kernel clears every page first. At most one
checkpoint is under way, so what the last one was copied into is free when the next one begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from results.records.machines import available_cpus

if TYPE_CHECKING:
    import numpy as np
    import torch

    _Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    _Pair = tuple[_Bytes, _Bytes]

_THREADS = 4
"""At most: more would wait for the memory."""
_PIECE = 4 * 2**20
"""Bytes that a thread copies at once; less in all is copied sooner than a thread is there."""

_Kind = tuple["torch.dtype", "torch.Size", bool]


class HostBuffers:
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
        kind = tensor.dtype, tensor.shape, tensor.is_cuda
        if self._free[kind]:
            found = self._free[kind].pop()
        else:
            found = _empty(tensor, pinned=tensor.is_cuda)
        self._used[kind].append(found)
        return found


_current: ContextVar[HostBuffers | None] = ContextVar("buffers", default=None)


def copied(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies on the host, contiguous; while a checkpoint is saved, in memory of the one before."""
    sources = [tensor.detach() for tensor in tensors]
    buffers = _current.get()
    targets = [buffers.take(s) if buffers else _empty(s, pinned=False) for s in sources]
    plain: list[_Pair] = []
    for target, source in zip(targets, sources, strict=True):
        if _is_plain(source):
            plain.append((_bytes(target), _bytes(source)))
        else:
            target.copy_(source)
    shares = list(_shares(plain))
    if len(shares) == 1:
        _copy(shares[0])
    elif shares:
        with ThreadPoolExecutor(available_cpus(_THREADS)) as pool:
            list(pool.map(_copy, shares))
    return targets


def _empty(tensor: torch.Tensor, *, pinned: bool) -> torch.Tensor:
    import torch

    with torch.inference_mode(False):  # its next use may be in another mode
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has bytes, and they are its values, in order and on the host."""
    lazy = tensor.is_conj() or tensor.is_neg()
    here = tensor.device.type == "cpu" and tensor.is_contiguous()
    return here and tensor.numel() > 0 and not lazy  # an empty one may have any strides


def _bytes(tensor: torch.Tensor) -> _Bytes:
    import torch

    flat: _Bytes = tensor.view(-1).view(torch.uint8).numpy()
    return flat


def _copy(share: Sequence[_Pair]) -> None:
    """Of bytes: torch would start threads of its own in each of ours."""
    import numpy as np  # not above: commands that only look import this module too

    for target, source in share:
        np.copyto(target, source)


def _shares(pairs: Sequence[_Pair]) -> Iterator[list[_Pair]]:
    """What each call of a thread copies: about as many bytes, large tensors in pieces."""
    share: list[_Pair] = []
    size = 0
    for target, source in pairs:
        for start in range(0, len(target), _PIECE):
            piece = target[start : start + _PIECE]
            share.append((piece, source[start : start + _PIECE]))
            size += len(piece)
            if size >= _PIECE:
                yield share
                share, size = [], 0
    if share:
        yield share
