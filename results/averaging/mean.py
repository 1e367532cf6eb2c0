"""Weighted mean, and the methods that differ only in the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from results.averaging.method import Combine, Method, normalised
from results.averaging.numerics import Floats
from results.averaging.stack import Stack


def mean(stack: Stack) -> Combine:
    """The weighted mean, exact where all models agree.

    Values that are not finite are not refused here: they make the result not finite.
    """
    if stack.sums_are_exact and len(set(stack.shares)) == 1:
        return _mean_by_sum(stack)
    return _mean_by_differences(stack)


def _mean_by_sum(stack: Stack) -> Combine:
    """One pass over each model, and one division."""
    import numpy as np

    total, models = np.empty(stack.piece_size), len(stack.shares)

    def combine(piece: slice) -> Floats:
        result = total[: piece.stop - piece.start]
        result[:] = stack.unchecked_value(0, piece)  # a sum with 0.0 would lose the sign of -0.0
        with np.errstate(invalid="ignore"):
            for model in range(1, models):
                stack.add_to(result, model, piece)
            result /= models
        return result

    return combine


def _mean_by_differences(stack: Stack) -> Combine:
    """The first model plus the mean of the differences from it."""
    import numpy as np

    first, total = np.empty(stack.piece_size), np.empty(stack.piece_size)

    def combine(piece: slice) -> Floats:
        count = piece.stop - piece.start
        result, differences = first[:count], total[:count]
        result[:] = stack.unchecked_value(0, piece)
        differences.fill(0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for model in range(1, len(stack.shares)):
                value = stack.unchecked_value(model, piece)
                value -= result
                value *= stack.shares[model]
                differences += value
            # adding 0.0 would lose the sign of -0.0
            np.add(result, differences, out=result, where=differences != 0.0)
        return result

    return combine


class Uniform(Method):
    """Mean with equal weights (a uniform soup: Wortsman et al. 2022, arXiv 2203.05482)."""

    linear: ClassVar[bool] = True

    def prepare(self, stack: Stack) -> Combine:
        """The mean; see the base class."""
        return mean(stack)


class Greedy(Uniform):
    """Mean of a subset: candidates are added, best first, unless the validation score gets worse.

    A greedy soup (Wortsman et al. 2022); `results.averaging.soup` selects the candidates.
    """

    selects: ClassVar[bool] = True


class Weighted(Uniform):
    """Mean with given weights; with numbers of examples it is FedAvg (McMahan et al. 2017)."""

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """The weights, of which only the ratios matter; without any, all are equal."""
        return normalised(models, [1.0] * models if weights is None else weights)


class Ema(Uniform):
    """Exponential moving average over models in order of time: the last one has the most weight."""

    decay: float = Field(
        0.9, ge=0, lt=1, description="what remains of the average when the next model is added"
    )

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """The i-th of n has (1 - decay) decay^(n-i), the first one decay^(n-1)."""
        super().shares(models, weights)
        later = [(1 - self.decay) * self.decay ** (models - i) for i in range(2, models + 1)]
        return normalised(models, [self.decay ** (models - 1), *later])
