"""Read one tensor of several model files in pieces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from results.averaging.numerics import STORED, Array, Floats, widen
from results.averaging.stack import Stack
from results.checkpoints.tensor_layout import TensorLayout
from search_spaces.errors import UserError


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
