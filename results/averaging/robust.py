"""Means that a few outlying models cannot move (Yin et al. 2018, arXiv 1803.01498)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from results.averaging.method import Combine, Method
from results.averaging.stack import Stack

if TYPE_CHECKING:
    from results.averaging.numerics import Floats


class TrimmedMean(Method):
    """The mean of each element without its smallest and largest values."""

    trim: float = Field(0.2, ge=0, lt=0.5, description="part of the models left out at each end")

    def columns(self, models: int) -> int:
        """All models at once, and their sorted copy."""
        return 2 * models + 3

    def start(self, stack: Stack) -> Combine:
        """See the base class."""
        return _middle(stack, int(self.trim * len(stack.shares)))


class Median(Method):
    """The median of each element; of an even number of models, the mean of the middle two."""

    def columns(self, models: int) -> int:
        """All models at once, and their sorted copy."""
        return 2 * models + 3

    def start(self, stack: Stack) -> Combine:
        """See the base class."""
        return _middle(stack, (len(stack.shares) - 1) // 2)


def _middle(stack: Stack, cut: int) -> Combine:
    """Mean of the sorted values but for `cut` at each end; exact where those agree."""
    import numpy as np

    models = len(stack.shares)
    block = np.empty((models, stack.step))

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
