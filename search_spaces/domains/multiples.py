"""Multiples of a step, without the errors that floats make of them."""

from __future__ import annotations

import math
from decimal import Decimal


def multiple(value: int | float, q: int | float) -> bool:
    """Whether a value is a whole multiple of q, but for an error of rounding."""
    count = value / q
    return math.isfinite(count) and math.isclose(count, round(count))


def times(q: int | float, count: int) -> float:
    """That multiple of q: 3 times 0.05 is 0.15, as it is not in floats."""
    return float(Decimal(repr(q)) * count)
