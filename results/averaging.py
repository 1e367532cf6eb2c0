"""The mean of several models' weights, from file to file, in memory flat in their number.

Sums are in float64 and rounded once, to each tensor's own dtype (averaging in bfloat16 itself
doubles the error, and changes up to a third of the elements even of identical models).
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from results.files import fsync_dir
from results.tensors import Layout, Tensor, difference, header_bytes, read_layout
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CHUNK = 1 << 17
"""Elements read at a time: the buffers of 1 MiB (float64) stay in the processor's cache."""

_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""How floats lie in the file. NumPy has no bfloat16: its bits are widened and rounded here."""


def average(sources: Sequence[Path], target: Path, weights: Sequence[float] | None = None) -> None:
    """Write the weighted mean of models, tensor by tensor.

    The result does not depend on the order of the sources. The mean of identical models is that
    model, bit for bit, whatever the weights. Tensors that are not float64, float32, float16 or
    bfloat16 (counters, masks, quantised blocks) have no mean: they must be equal in all sources.

    Args:
        sources: safetensors files with the same names, shapes and dtypes.
        target: replaced atomically; its header holds the metadata that all sources agree on.
        weights: one per source, not negative, not all zero; only their ratios matter. None gives
            every source the same.

    Raises:
        UserError: sources that do not fit together, a NaN or an infinity in one of them, or
            weights that make no mean; the message names file and tensor.
    """
    shares = _shares(sources, weights)
    layouts = [read_layout(path) for path in sources]
    for other in layouts[1:]:
        if reason := difference(layouts[0], other):
            raise UserError(f"{sources[0]} and {other.path} cannot be averaged: {reason}")
    # one order for every order of the arguments: by content, because paths are arbitrary; the
    # largest share first, because the differences from the first are what is averaged
    digests = [_digest(path) for path in sources]
    order = sorted(range(len(sources)), key=lambda i: (-shares[i], digests[i]))
    _write([layouts[i] for i in order], [shares[i] for i in order], target)


def _shares(sources: Sequence[Path], weights: Sequence[float] | None) -> list[float]:
    given = [1.0] * len(sources) if weights is None else [float(w) for w in weights]
    if not sources or len(given) != len(sources):
        raise UserError(f"an average of {len(sources)} models cannot have {len(given)} weights")
    total = math.fsum(given)
    if min(given) < 0 or not 0 < total < math.inf:
        raise UserError(f"weights of an average are at least 0 and not all 0, not {given}")
    return [w / total for w in given]


def _digest(path: Path) -> bytes:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").digest()


def _write(layouts: list[Layout], shares: list[float], target: Path) -> None:
    first = layouts[0]
    common = {
        key: value
        for key, value in first.metadata.items()
        if all(other.metadata.get(key) == value for other in layouts)
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    tmp = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(open(layout.path, "rb")) for layout in layouts]
            out = stack.enter_context(open(tmp, "wb"))
            out.write(header_bytes(first.tensors, common))
            mean = _Mean(layouts, files, shares)
            for name in first.tensors:
                for piece in mean.pieces(name):
                    out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        os.replace(tmp, target)
    finally:
        tmp.unlink(missing_ok=True)
    fsync_dir(target.parent)


class _Mean:
    """The arithmetic, on buffers that are made once."""

    def __init__(
        self, layouts: Sequence[Layout], files: Sequence[BinaryIO], shares: Sequence[float]
    ) -> None:
        import numpy as np

        self._layouts = layouts
        self._files = files
        self._shares = shares
        self._raw = bytearray(8 * _CHUNK)
        self._base = np.empty(_CHUNK)
        self._value = np.empty(_CHUNK)
        self._sum = np.empty(_CHUNK)

    def pieces(self, name: str) -> Iterator[bytes | memoryview]:
        """The bytes of one tensor of the result."""
        tensor = self._layouts[0].tensors[name]
        stored = _STORED.get(tensor.dtype)
        step = _CHUNK * (int(stored[-1]) if stored else 8)
        for offset in range(0, tensor.end - tensor.start, step):
            size = min(step, tensor.end - tensor.start - offset)
            if stored:
                yield self._floats(name, tensor, stored, offset, size)
            else:
                yield self._equal(name, offset, size)

    def _floats(
        self, name: str, tensor: Tensor, stored: str, offset: int, size: int
    ) -> bytes | memoryview:
        """The first source plus the mean of the differences from it: exact where all agree."""
        import numpy as np

        count = size // int(stored[-1])
        base, value, total = self._base[:count], self._value[:count], self._sum[:count]
        total.fill(0.0)
        for i, share in enumerate(self._shares):
            into = value if i else base
            _widen(np.frombuffer(self._read(i, name, offset, size), stored), into)
            if not np.isfinite(into).all():
                path = self._layouts[i].path
                raise UserError(f"{path}: tensor '{name}' holds a NaN or an infinity")
            if i:
                with np.errstate(over="ignore", invalid="ignore"):
                    value -= base
                    value *= share
                    total += value
        np.add(base, total, out=base, where=total != 0.0)  # keeps the sign of -0.0
        if not np.isfinite(base).all():
            raise UserError(f"the mean of tensor '{name}' overflows {tensor.dtype}")
        return _narrow(base, tensor.dtype)

    def _equal(self, name: str, offset: int, size: int) -> bytes:
        expected = bytes(self._read(0, name, offset, size))
        for i in range(1, len(self._files)):
            if self._read(i, name, offset, size) != expected:
                raise UserError(
                    f"{self._layouts[0].path} and {self._layouts[i].path} cannot be averaged: "
                    f"tensor '{name}' differs, and {self._layouts[0].tensors[name].dtype} "
                    f"has no mean"
                )
        return expected

    def _read(self, source: int, name: str, offset: int, size: int) -> memoryview:
        file, layout = self._files[source], self._layouts[source]
        file.seek(layout.tensors[name].start + offset)
        view = memoryview(self._raw)[:size]
        if file.readinto(view) != size:  # type: ignore[attr-defined]
            raise UserError(f"{layout.path}: shrank while it was read")
        return view


def _widen(stored: NDArray[Any], into: NDArray[np.float64]) -> None:
    import numpy as np

    if stored.dtype == np.dtype("<u2"):  # bfloat16 is the upper half of a float32
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    into[:] = stored


def _narrow(values: NDArray[np.float64], dtype: str) -> bytes:
    """Round to nearest, ties to even, once."""
    import numpy as np

    if dtype != "BF16":
        return values.astype(_STORED[dtype]).tobytes()
    # to float32 by rounding to odd, so that the second rounding sees what the first cut off
    # (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums")
    single = values.astype(np.float32)
    widened = single.astype(np.float64)
    bits = single.view(np.uint32)
    bits -= np.abs(widened) > np.abs(values)
    bits |= widened != values
    bits += 0x7FFF + ((bits >> 16) & 1)
    return (bits >> 16).astype("<u2").tobytes()
