"""The best value of each parameter at each size, from parabolas through the best trials there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEVEL = 0.9
"""Of all intervals."""
_REPLICATES = 1000


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds of its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, replicates: Array) -> Interval:
        """That of an estimate and its bootstrap replicates."""
        low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return cls(float(value), float(min(low, value)), float(max(high, value)))

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, eq=False)
class SizeTrials:
    """The complete trials of one size.

    Attributes:
        size: value of each size parameter, by name.
        points: values of the searched parameters, on the scale on which they are compared;
            (trials, parameters).
        losses: lower is better; (trials,).
        compute: of one trial (FLOP); None if it is unknown.
    """

    size: Mapping[str, float]
    points: Array
    losses: Array
    compute: float | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.size.items())


@dataclass(frozen=True)
class Optima:
    """The optimum of each size.

    Attributes:
        sizes: the trials.
        best: on the scale of `points`; (sizes, parameters).
        losses: at the optimum; (sizes,).
        curvature: of each parameter; one without an optimum has none above 0.
        is_inside: whether the optimum lies among the values tried; (sizes, parameters).
        replicates: of `best`, by bootstrap; (replicates, sizes, parameters).
    """

    sizes: Sequence[SizeTrials]
    best: Array
    losses: Array
    curvature: Array
    is_inside: NDArray[np.bool_]
    replicates: Array


def needed_trials(parameters: int) -> int:
    """Trials of one size without which it has no optimum."""
    return parameters + 3


def fit_optima(sizes: Sequence[SizeTrials]) -> Optima:
    """Fit `loss = a_s + b_s z + c z^2` by least squares to the better half of each size's trials.

    Parameters add up. The curvature `c` of a parameter is that of all sizes, so that few trials of
    each are enough. Replicates draw the residuals of all trials again.
    """
    from scipy.linalg import block_diag

    count = sizes[0].points.shape[1]
    points, losses = zip(*(_better_half(size, needed_trials(count)) for size in sizes), strict=True)
    lines = block_diag(*(np.column_stack([np.ones(len(z)), z]) for z in points))
    design, values = np.hstack([lines, np.concatenate(points) ** 2]), np.concatenate(losses)
    solve = np.linalg.pinv(design)
    fitted = design @ (solve @ values)
    free = max(1, len(values) - np.linalg.matrix_rank(design))
    rest = (values - fitted) * math.sqrt(len(values) / free)
    drawn = fitted + np.random.default_rng(0).choice(rest, (_REPLICATES, len(values)))
    low = np.array([size.points.min(0) for size in sizes])
    high = np.array([size.points.max(0) for size in sizes])

    def minima(factors: Array) -> tuple[Array, Array]:
        """Places, kept near what was tried, and losses."""
        of_sizes = factors[..., :-count].reshape(*factors.shape[:-1], len(sizes), 1 + count)
        slopes, bend = of_sizes[..., 1:], np.maximum(factors[..., None, -count:], 1e-12)
        best = np.clip(-slopes / (2 * bend), 2 * low - high, 2 * high - low)
        return best, of_sizes[..., 0] + (slopes * best + bend * best**2).sum(-1)

    best, least = minima(solve @ values)
    inside = (low <= best) & (best <= high)
    replicates, _ = minima(drawn @ solve.T)
    return Optima(sizes, best, least, (solve @ values)[-count:], inside, replicates)


def _better_half(size: SizeTrials, needed: int) -> tuple[Array, Array]:
    """Points and losses of the trials near the optimum, where a parabola fits."""
    count = max(needed, math.ceil(len(size.losses) / 2))
    kept = np.argsort(size.losses, kind="stable")[:count]
    return size.points[kept], size.losses[kept]
