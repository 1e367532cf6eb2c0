"""One tensor of all models, read piece by piece: the input of an averaging method."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from results.averaging.numerics import Floats

GRAIN = 4096
"""Piece sizes are multiples of this number of elements. A sum that is taken grain by grain does not
depend on the piece size."""


class Stack(ABC):
    """A tensor of each model, and of their common start, as flat float64 arrays.

    Attributes:
        size: number of elements.
        shares: part of each model in the result; they add up to one.
        piece_size: elements of a piece, a multiple of `GRAIN`.
        sums_are_exact: whether float64 represents n times any element exactly, for any realistic
            number n of models, because the elements come from a format with fewer digits.
    """

    sums_are_exact: bool = False

    def __init__(self, name: str, size: int, shares: Sequence[float], piece_size: int) -> None:
        self.name, self.size, self.piece_size = name, size, piece_size
        self.shares = tuple(shares)

    @abstractmethod
    def value(self, model: int, piece: slice) -> Floats:
        """Elements of a model, all finite; a buffer that the next call overwrites."""

    def unchecked_value(self, model: int, piece: slice) -> Floats:
        """Like `value`, without the check: for sums, where the result shows what is not finite."""
        return self.value(model, piece)

    def add_to(self, total: Floats, model: int, piece: slice) -> None:
        """Add `unchecked_value` of a model to an array of the piece's length."""
        total += self.unchecked_value(model, piece)

    @abstractmethod
    def base(self, piece: slice) -> Floats:
        """Elements of the models' common start; the next call of `base` overwrites them."""

    def pieces(self) -> Iterator[slice]:
        """The pieces of the whole tensor, in order."""
        size = self.piece_size
        return (slice(at, min(at + size, self.size)) for at in range(0, self.size, size))

    def delta(self, model: int, piece: slice) -> Floats:
        """Difference of a model from the base (its task vector); overwritten like `value`."""
        import numpy as np

        value = self.value(model, piece)
        np.subtract(value, self.base(piece), out=value)
        return value

    def digest(self, model: int) -> bytes:
        """SHA-256 of a model's whole tensor; equal for tied tensors."""
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
        piece_size: int = 1 << 17,
    ) -> None:
        super().__init__(name, base.size, shares, piece_size)
        self._values, self._base = values, base

    def value(self, model: int, piece: slice) -> Floats:
        """A copy, because callers calculate in place."""
        return self._values[model][piece].copy()

    def base(self, piece: slice) -> Floats:
        """A view of the base."""
        return self._base[piece]
