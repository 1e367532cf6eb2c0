"""Copies a trial's state to the host with several threads, into memory that is used again.

New memory costs more than the copy, because the kernel clears every page first. At most one
checkpoint is in progress, so the memory of the last one is free when the next one begins.
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
"""Limit: more threads would wait for memory bandwidth."""
_PIECE = 4 * 2**20
"""Bytes per thread; copying fewer than that in total is faster than starting a thread."""

_Kind = tuple["torch.dtype", "torch.Size", bool]


class HostBuffers:
    """Host tensors of one rank of one trial."""

    def __init__(self) -> None:
        self._free: dict[_Kind, list[torch.Tensor]] = defaultdict(list)
        self._used: dict[_Kind, list[torch.Tensor]] = defaultdict(list)

    @contextmanager
    def reuse(self) -> Iterator[None]:
        """Within this block, `copy_to_host` overwrites the tensors of the previous block."""
        for kind, tensors in self._used.items():
            self._free[kind] += tensors
        self._used.clear()
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def clear(self) -> None:
        """Free the memory."""
        self._free.clear()
        self._used.clear()

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """A host tensor of the same shape and dtype; pinned if the source is on a GPU."""
        kind = tensor.dtype, tensor.shape, tensor.is_cuda
        if self._free[kind]:
            found = self._free[kind].pop()
        else:
            found = _empty(tensor, pinned=tensor.is_cuda)
        self._used[kind].append(found)
        return found


_current: ContextVar[HostBuffers | None] = ContextVar("buffers", default=None)


def copy_to_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Contiguous copies on the host; within `HostBuffers.reuse`, in memory that is used again."""
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

    with torch.inference_mode(False):  # it may be used again outside inference mode
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the host and its bytes are its values in order."""
    lazy = tensor.is_conj() or tensor.is_neg()
    here = tensor.device.type == "cpu" and tensor.is_contiguous()
    return here and tensor.numel() > 0 and not lazy  # an empty tensor may have any strides


def _bytes(tensor: torch.Tensor) -> _Bytes:
    import torch

    flat: _Bytes = tensor.view(-1).view(torch.uint8).numpy()
    return flat


def _copy(share: Sequence[_Pair]) -> None:
    """Copy with numpy, because torch would start its own threads in each of ours."""
    import numpy as np  # here, because commands that train nothing import this module too

    for target, source in share:
        np.copyto(target, source)


def _shares(pairs: Sequence[_Pair]) -> Iterator[list[_Pair]]:
    """Split the copies into shares of about equal size, large tensors in pieces."""
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
