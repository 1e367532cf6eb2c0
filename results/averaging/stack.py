"""One tensor of all models side by side, read piece by piece: what a method sees of the models."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.averaging.numerics import Floats

GRAIN = 4096
"""Pieces are multiples of so many elements: sums over whole grains, one after another, do not
depend on how long a piece is."""


class Stack(ABC):
    """A tensor of each model, and of their common start, as flat float64 arrays.

    Attributes:
        name: of the tensor.
        size: elements.
        shares: part of each model in the result; they add up to one.
        step: elements of a piece, a multiple of `GRAIN`.
        sums_are_exact: whether float64 holds n times any element, for as many models as there may
            be: the elements come from a format with fewer digits.
    """

    sums_are_exact: bool = False

    def __init__(self, name: str, size: int, shares: Sequence[float], step: int) -> None:
        self.name, self.size, self.shares, self.step = name, size, tuple(shares), step

    @abstractmethod
    def value(self, model: int, piece: slice) -> Floats:
        """Elements of a model, all finite: a buffer that the next call overwrites."""

    def stored(self, model: int, piece: slice) -> Floats:
        """Like `value`, unchecked: for sums, where what is not finite shows at the end."""
        return self.value(model, piece)

    def add(self, model: int, piece: slice, to: Floats) -> None:
        """Add what `stored` gives to an array of a piece's length."""
        to += self.stored(model, piece)

    @abstractmethod
    def base(self, piece: slice) -> Floats:
        """Elements of the models' common start; the next call of `base` overwrites them."""

    def pieces(self) -> Iterator[slice]:
        """The whole tensor, in order."""
        return (slice(at, min(at + self.step, self.size)) for at in range(0, self.size, self.step))

    def delta(self, model: int, piece: slice) -> Floats:
        """How far a model has gone from the start; overwritten like `value`."""
        import numpy as np

        value = self.value(model, piece)
        np.subtract(value, self.base(piece), out=value)
        return value

    def content(self, model: int) -> bytes:
        """Digest of a model's whole tensor: the same for tied tensors, wherever it stands."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(self.value(model, piece).data.cast("B"))
        return digest.digest()


class ArrayStack(Stack):
    """A stack of arrays in memory."""

    def __init__(
        self,
        name: str,
        values: Sequence[Floats],
        base: Floats,
        shares: Sequence[float],
        step: int = 1 << 17,
    ) -> None:
        super().__init__(name, base.size, shares, step)
        self._values, self._base = values, base

    def value(self, model: int, piece: slice) -> Floats:
        """A copy, since callers calculate in place."""
        return self._values[model][piece].copy()

    def base(self, piece: slice) -> Floats:
        """A view of the start."""
        return self._base[piece]
