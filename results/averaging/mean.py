"""Means of models: weighted, on the arc between two (Shoemake 1985), and of the middle values.

Those of the middle are robust to a few outlying models (Yin et al. 2018, arXiv 1803.01498).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from results.averaging.method import Combine, Method, normalised
from results.averaging.numerics import Floats
from results.averaging.stack import GRAIN, Stack
from search_spaces.errors import UserError


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


_PARALLEL = 1e-6
"""Sine of the angle below which linear interpolation is used; there both give the same result."""


class Slerp(Method):
    """Interpolation on the arc between two models, which keeps their norm."""

    def shares(self, models: int, weights: Sequence[float] | None) -> list[float]:
        """See the base class.

        Raises:
            UserError: there are not exactly two models, or the weights are not valid.
        """
        if models != 2:
            raise UserError(f"method slerp interpolates between 2 models, not {models}")
        return normalised(2, [1.0, 1.0] if weights is None else weights)

    def prepare(self, stack: Stack) -> Combine:
        """Measures the angle; see the base class."""
        angle = _angle(stack)
        if angle is None:
            return mean(stack)
        first, second = (math.sin(share * angle) / math.sin(angle) for share in stack.shares)

        def combine(piece: slice) -> Floats:
            result = stack.value(0, piece) * first
            result += stack.value(1, piece) * second
            return result

        return combine


def _angle(stack: Stack) -> float | None:
    """Angle between the two tensors in radians; None where they are parallel or one is zero."""
    import numpy as np

    products = [0.0, 0.0, 0.0]
    for piece in stack.pieces():
        one = stack.value(0, piece).copy()
        two = stack.value(1, piece)
        for at in range(0, one.size, GRAIN):  # by grain: see `GRAIN`
            a, b = one[at : at + GRAIN], two[at : at + GRAIN]
            for i, (x, y) in enumerate(((a, b), (a, a), (b, b))):
                products[i] += float(np.sum(x * y))
    dot, aa, bb = products
    if not (aa > 0 and bb > 0 and math.isfinite(aa * bb)):
        return None
    angle = math.acos(max(-1.0, min(1.0, dot / math.sqrt(aa) / math.sqrt(bb))))
    return None if math.sin(angle) < _PARALLEL else angle


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
