"""Conversion between the float formats of files and float64, the format of all arithmetic.

NumPy has no bfloat16, so this module widens and rounds its bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Array = NDArray[Any]
else:  # NumPy is imported by the functions that need it
    Floats = Array = Any

STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Float formats by their names in a safetensors file → NumPy dtype of the stored bytes."""

DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Float formats by the names that users write → names in a safetensors file."""


def item_bytes(dtype: str) -> int:
    """Bytes of one float of this format."""
    return int(STORED[dtype][-1])


def widen(stored: Array, into: Floats) -> None:
    """Write the exact values of stored floats into a float64 array."""
    import numpy as np

    if stored.dtype == np.dtype("<u2"):  # bfloat16 is the upper half of a float32
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    into[:] = stored


def narrow(values: Floats, dtype: str) -> Array | None:
    """Round once, to nearest, ties to even; None if a result would be infinite or NaN."""
    import numpy as np

    with np.errstate(over="ignore"):
        if dtype != "BF16":
            rounded: Array = values.astype(STORED[dtype])
            return rounded if np.isfinite(rounded).all() else None
        # round to odd in float32, so that the second rounding still sees what the first one cut off
        # (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums")
        single = values.astype(np.float32)
    if not np.isfinite(single).all():
        return None
    widened = single.astype(np.float64)
    bits = single.view(np.uint32)
    bits -= np.abs(widened) > np.abs(values)
    bits |= widened != values
    bits += 0x7FFF + ((bits >> 16) & 1)
    words = (bits >> 16).astype("<u2")
    return None if ((words & 0x7F80) == 0x7F80).any() else words
