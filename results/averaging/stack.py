"""One tensor of all models, read piece by piece from files: the input of an averaging method."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from results.averaging.numerics import STORED, Array, Floats, widen
from results.checkpoints.tensor_layout import TensorLayout
from search_spaces.errors import UserError

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


@dataclass(frozen=True)
class ModelFiles:
    """The models of one average, and the weights from which they started.

    Attributes:
        layouts: of the models, in the order in which they are added up.
        shares: part of each model in the result; they add up to one.
        base: the models' common start, for methods that need it.
    """

    layouts: Sequence[TensorLayout]
    shares: Sequence[float]
    base: TensorLayout | None = None


class ReadBuffers:
    """Memory that is allocated once and used for every tensor of every model."""

    def __init__(self, piece_size: int) -> None:
        import numpy as np

        self.piece_size = piece_size
        self.raw = bytearray(8 * piece_size)
        self.value = np.empty(piece_size)
        self.base = np.empty(piece_size)


class FileStack(Stack):
    """A tensor that is float in all models, read from their files."""

    def __init__(self, name: str, models: ModelFiles, buffers: ReadBuffers) -> None:
        tensor = models.layouts[0].tensors[name]
        super().__init__(name, tensor.size, models.shares, buffers.piece_size)
        self._models, self._buffers = models, buffers
        self.sums_are_exact = tensor.dtype != "F64"
        self._files = ExitStack()
        self._open: dict[Path, int] = {}
        self._base_start = -1

    def __enter__(self) -> FileStack:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def value(self, model: int, piece: slice) -> Floats:
        """See the base class.

        Raises:
            UserError: the piece holds a NaN or an infinity, or the file shrank.
        """
        return self._finite(self._models.layouts[model], piece, self._buffers.value)

    def unchecked_value(self, model: int, piece: slice) -> Floats:
        """See the base class."""
        return self._floats(self._models.layouts[model], piece, self._buffers.value)

    def add_to(self, total: Floats, model: int, piece: slice) -> None:
        """Without a copy in float64; see the base class."""
        if (layout := self._models.layouts[model]).tensors[self.name].dtype == "BF16":
            super().add_to(total, model, piece)
        else:
            total += self._raw(layout, piece)

    def base(self, piece: slice) -> Floats:
        """See the base class."""
        into = self._buffers.base
        if self._base_start == piece.start:
            return into[: piece.stop - piece.start]
        assert self._models.base is not None
        self._base_start = piece.start
        return self._finite(self._models.base, piece, into)

    def _finite(self, layout: TensorLayout, piece: slice, into: Floats) -> Floats:
        import numpy as np

        values = self._floats(layout, piece, into)
        if not np.isfinite(values).all():
            raise UserError(f"{layout.path}: tensor '{self.name}' holds a NaN or an infinity")
        return values

    def _floats(self, layout: TensorLayout, piece: slice, into: Floats) -> Floats:
        values = into[: piece.stop - piece.start]
        widen(self._raw(layout, piece), values)
        return values

    def _raw(self, layout: TensorLayout, piece: slice) -> Array:
        import numpy as np

        stored = STORED[layout.tensors[self.name].dtype]
        width = int(stored[-1])
        size = (piece.stop - piece.start) * width
        return np.frombuffer(self.bytes_of(layout, piece.start * width, size), stored)

    def bytes_of(self, layout: TensorLayout, offset: int, size: int) -> memoryview:
        """Bytes of the tensor in one model; the next call overwrites them."""
        tensor = layout.tensors[self.name]
        if tensor.file not in self._open:
            self._open[tensor.file] = os.open(tensor.file, os.O_RDONLY)
            self._files.callback(os.close, self._open[tensor.file])
        view = memoryview(self._buffers.raw)[:size]
        done = 0
        while done < size:
            got = os.preadv(self._open[tensor.file], [view[done:]], tensor.start + offset + done)
            if not got:
                raise UserError(f"{tensor.file}: shrank while it was read")
            done += got
        return view
