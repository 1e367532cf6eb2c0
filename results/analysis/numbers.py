"""Arithmetic with reported values, which may be as large as a float can be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MAX_COMPARED = 1e100
"""Sums, squares and products of three of such values are still finite."""


def comparable(value: float) -> float:
    """A number to compute with, in the same order as the value; NaN is the lowest.

    Greater magnitudes than `MAX_COMPARED` are that number.
    """
    return -MAX_COMPARED if math.isnan(value) else max(-MAX_COMPARED, min(value, MAX_COMPARED))


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value, also where the sum is beyond the range of floats."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return float(statistics.mean(values))
