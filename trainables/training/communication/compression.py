"""Compressed forms of gradients, and the errors that they leave.

Each works on one parameter at a time: what is sent does not depend on how gradients are put
together in buckets, which is different after a resume. All ranks get the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

from trainables.parallel.footprint import Traffic
from trainables.training.communication.collectives import size_of

Reduce = Callable[[torch.Tensor], None]
"""Sums a flat tensor over the ranks, in place."""
Gradients = Mapping[str, torch.Tensor]
"""Gradients by name of the parameter, float of any shape; replaced by their means, in place."""


class Compression(ABC):
    """Averages gradients over the ranks in a form that takes fewer bytes.

    Attributes:
        state: tensors by name, of this rank alone, which a checkpoint must hold.
    """

    def __init__(self, reduce: Reduce, ranks: int, traffic: Traffic) -> None:
        self.state: dict[str, torch.Tensor] = {}
        self._reduce, self._ranks, self._traffic = reduce, ranks, traffic

    @abstractmethod
    def average(self, gradients: Gradients) -> None:
        """Replace the gradients of some parameters by their mean over the ranks."""

    def _gather(self, mine: torch.Tensor) -> torch.Tensor:
        """The flat tensor of each rank: [ranks, values]."""
        everyone = mine.new_empty(self._ranks, len(mine))
        self._traffic.add((self._ranks - 1) * size_of(mine), self._ranks - 1)
        dist.all_gather(list(everyone), mine)
        return everyone


class Cast(Compression):
    """Sends 16 bits per value. Divided before the sum, which may overflow in fp16 otherwise."""

    def __init__(
        self, reduce: Reduce, ranks: int, traffic: Traffic, dtype: torch.dtype | None
    ) -> None:
        super().__init__(reduce, ranks, traffic)
        self._dtype = dtype

    def average(self, gradients: Gradients) -> None:
        """See the base class."""
        flat = torch.cat([g.flatten() for g in gradients.values()]).div_(self._ranks)
        sent = flat if self._dtype is None else flat.to(self._dtype)
        self._reduce(sent)
        _put(gradients, sent)


class PowerSgd(Compression):
    """Sends two thin matrices in place of each matrix (Vogels et al. 2019, "PowerSGD").

    One step of power iteration, which begins with the result of the step before. Vectors, and
    matrices that would not become smaller, are sent whole.
    """

    def __init__(self, reduce: Reduce, ranks: int, traffic: Traffic, matrix_rank: int) -> None:
        super().__init__(reduce, ranks, traffic)
        self._matrix_rank, self._whole = matrix_rank, Cast(reduce, ranks, traffic, None)

    def average(self, gradients: Gradients) -> None:
        """See the base class."""
        thin = {name: g for name, g in gradients.items() if self._is_smaller(g)}
        if whole := {name: g for name, g in gradients.items() if name not in thin}:
            self._whole.average(whole)
        if not thin:
            return
        errors = {name: self.state.get(f"error.{name}", 0.0) for name in thin}
        matrices = {name: _matrix(g).float() + errors[name] for name, g in thin.items()}
        left = self._mean({name: m @ self._right(name, m) for name, m in matrices.items()})
        left = {name: torch.linalg.qr(p).Q for name, p in left.items()}
        right = self._mean({name: m.T @ left[name] for name, m in matrices.items()})
        for name, matrix in matrices.items():
            mean = left[name] @ right[name].T
            self.state[f"right.{name}"] = right[name]
            self.state[f"error.{name}"] = matrix - mean
            thin[name].copy_(mean.view_as(thin[name]))

    def _is_smaller(self, gradient: torch.Tensor) -> bool:
        if gradient.ndim < 2:
            return False
        rows, columns = _matrix(gradient).shape
        return self._matrix_rank < min(rows, columns) and (
            (rows + columns) * self._matrix_rank < rows * columns
        )

    def _right(self, name: str, matrix: torch.Tensor) -> torch.Tensor:
        """The right factor of the step before; at first random, the same on every rank."""
        known = self.state.get(f"right.{name}")
        if known is not None:
            return known
        generator = torch.Generator().manual_seed(0)
        shape = matrix.shape[1], self._matrix_rank
        return torch.randn(shape, generator=generator).to(matrix.device)

    def _mean(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        means = {name: torch.empty_like(t) for name, t in tensors.items()}
        flat = torch.cat([t.flatten() for t in tensors.values()]).div_(self._ranks)
        self._reduce(flat)
        _put(means, flat)
        return means


class TopK(Compression):
    """Sends the largest values of each gradient and their places (Aji and Heafield 2017)."""

    def __init__(self, reduce: Reduce, ranks: int, traffic: Traffic, ratio: float) -> None:
        super().__init__(reduce, ranks, traffic)
        self._ratio = ratio

    def average(self, gradients: Gradients) -> None:
        """See the base class."""
        values, places, begin = [], [], 0
        for name, gradient in gradients.items():
            whole = gradient.flatten().float() + self.state.get(f"error.{name}", 0.0)
            at = whole.abs().topk(math.ceil(self._ratio * len(whole))).indices
            values.append(whole[at])
            places.append((at + begin).int())
            whole[at] = 0
            self.state[f"error.{name}"] = whole
            begin += len(whole)
        total = torch.zeros(begin, device=values[0].device)
        found, where = self._gather(torch.cat(values)), self._gather(torch.cat(places))
        for rank in range(self._ranks):  # the same order on every rank: the same bits
            total.index_add_(0, where[rank], found[rank])
        _put(gradients, total.div_(self._ranks))


class Int8(Compression):
    """Sends 8 bits per value: multiples of 1/127 of the gradient's largest value."""

    def average(self, gradients: Gradients) -> None:
        """See the base class."""
        levels, scales = [], []
        for name, gradient in gradients.items():
            whole = gradient.flatten().float() + self.state.get(f"error.{name}", 0.0)
            scale = (whole.abs().max() / 127).clamp(min=torch.finfo(torch.float32).tiny)
            level = (whole / scale).round_().to(torch.int8)
            self.state[f"error.{name}"] = whole.sub_(level * scale)
            levels.append(level)
            scales.append(scale)
        sizes = [len(level) for level in levels]
        everyone, factors = self._gather(torch.cat(levels)), self._gather(torch.stack(scales))
        total = torch.zeros(everyone.shape[1], device=everyone.device)
        for theirs, steps in zip(everyone, factors.tolist(), strict=True):
            parts = zip(torch.split(total, sizes), torch.split(theirs, sizes), steps, strict=True)
            for part, level, step in parts:
                part.add_(level, alpha=step)
        _put(gradients, total.div_(self._ranks))


def _matrix(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.reshape(len(gradient), -1)


def _put(gradients: Gradients, flat: torch.Tensor) -> None:
    sizes = [g.numel() for g in gradients.values()]
    for gradient, part in zip(gradients.values(), torch.split(flat, sizes), strict=True):
        gradient.copy_(part.view_as(gradient))
