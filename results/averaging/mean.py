"""The weighted mean, and the ways to weigh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from results.averaging.method import Combine, Method, normalised
from results.averaging.stack import Stack

if TYPE_CHECKING:
    from results.averaging.numerics import Floats


def mean(stack: Stack) -> Combine:
    """The weighted mean, exact where all models agree.

    Values that are not finite go through the sum, so that the result is not finite either.
    """
    if stack.sums_are_exact and len(set(stack.shares)) == 1:
        return _sum(stack)
    return _differences(stack)


def _sum(stack: Stack) -> Combine:
    """One pass over each model, and one division."""
    import numpy as np

    total, models = np.empty(stack.step), len(stack.shares)

    def combine(piece: slice) -> Floats:
        result = total[: piece.stop - piece.start]
        result[:] = stack.stored(0, piece)  # not 0.0 plus it: keeps the sign of -0.0
        with np.errstate(invalid="ignore"):
            for model in range(1, models):
                stack.add(model, piece, result)
            result /= models
        return result

    return combine


def _differences(stack: Stack) -> Combine:
    """The first model plus the mean of the differences from it."""
    import numpy as np

    first, total = np.empty(stack.step), np.empty(stack.step)

    def combine(piece: slice) -> Floats:
        count = piece.stop - piece.start
        result, differences = first[:count], total[:count]
        result[:] = stack.stored(0, piece)
        differences.fill(0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for model in range(1, len(stack.shares)):
                value = stack.stored(model, piece)
                value -= result
                value *= stack.shares[model]
                differences += value
            # keeps the sign of -0.0
            np.add(result, differences, out=result, where=differences != 0.0)
        return result

    return combine


class Uniform(Method):
    """All models count the same (a uniform soup: Wortsman et al. 2022, arXiv 2203.05482)."""

    linear: ClassVar[bool] = True

    def start(self, stack: Stack) -> Combine:
        """The mean; see the base class."""
        return mean(stack)


class Greedy(Uniform):
    """The mean of those that do no harm when they are added, best first (Wortsman et al. 2022)."""

    selects: ClassVar[bool] = True


class Weighted(Uniform):
    """The mean by given weights; by numbers of examples it is FedAvg (McMahan et al. 2017)."""

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """The weights, of which only the ratios matter; without any, all count the same."""
        return normalised(models, [1.0] * models if weights is None else weights)


class Ema(Uniform):
    """Exponential moving average over models in order of time: named last, counts most."""

    decay: float = Field(
        0.9, ge=0, lt=1, description="what remains of the average when the next model is added"
    )

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """Of the i-th of n: (1 - decay) decay^(n-i), and decay^(n-1) of the first."""
        super().shares(models, weights)
        later = [(1 - self.decay) * self.decay ** (models - i) for i in range(2, models + 1)]
        return normalised(models, [self.decay ** (models - 1), *later])
