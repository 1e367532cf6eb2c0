"""Averages that are robust to a few outlying models (Yin et al. 2018, arXiv 1803.01498)."""

from __future__ import annotations

from pydantic import Field

from results.averaging.method import Combine, Method
from results.averaging.numerics import Floats
from results.averaging.stack import Stack


class _Sorted(Method):
    def num_buffers(self, models: int) -> int:
        """All models at once, and their sorted copy."""
        return 2 * models + 3


class TrimmedMean(_Sorted):
    """Mean of each element without its smallest and largest values."""

    trim: float = Field(0.2, ge=0, lt=0.5, description="part of the models left out at each end")

    def prepare(self, stack: Stack) -> Combine:
        """See the base class."""
        return _mean_of_middle(stack, int(self.trim * len(stack.shares)))


class Median(_Sorted):
    """Median of each element; for an even number of models, the mean of the middle two."""

    def prepare(self, stack: Stack) -> Combine:
        """See the base class."""
        return _mean_of_middle(stack, (len(stack.shares) - 1) // 2)


def _mean_of_middle(stack: Stack, cut: int) -> Combine:
    """Mean of the sorted values without `cut` at each end; exact where the others agree."""
    import numpy as np

    models = len(stack.shares)
    block = np.empty((models, stack.piece_size))

    def combine(piece: slice) -> Floats:
        values = block[:, : piece.stop - piece.start]
        for model in range(models):
            values[model] = stack.value(model, piece)
        kept = np.sort(values, axis=0)[cut : models - cut]
        least: Floats = kept[0]
        with np.errstate(over="ignore", invalid="ignore"):
            differences = (kept - least).sum(axis=0) / len(kept)
            np.add(least, differences, out=least, where=differences != 0.0)
        return least

    return combine
