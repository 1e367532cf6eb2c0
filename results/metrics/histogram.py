"""Counts of values by size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """How many values are at most as large as each bound; the sum of all.

    Args:
        bounds: ascending.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Each bound as text, and the number of values up to it; the last is `+Inf`."""
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))
