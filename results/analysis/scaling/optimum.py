"""The best value of each parameter at each size, from parabolas through the best trials there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEVEL = 0.9
"""Of all intervals."""
_REPLICATES = 1000


@dataclass(frozen=True)
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

    def better_half(self) -> tuple[Array, Array]:
        """Points and losses of the trials near the optimum, where a parabola fits; at least as many
        as one needs."""
        count = max(needed_trials(self.points.shape[1]), math.ceil(len(self.losses) / 2))
        kept = np.argsort(self.losses, kind="stable")[:count]
        return self.points[kept], self.losses[kept]


def needed_trials(parameters: int) -> int:
    """Trials of one size without which it has no optimum."""
    return parameters + 3


@dataclass(frozen=True)
class Optima:
    """The optimum of each size, by least squares: `loss = a_s + b_s z + c z^2`.

    The curvature of a parameter is that of all sizes, so that few trials of each are enough.
    Parameters add up. The better half of the trials of a size counts.

    Attributes:
        sizes: the trials, all with the same parameters.
    """

    sizes: Sequence[SizeTrials]

    @cached_property
    def _trials(self) -> Sequence[tuple[Array, Array]]:
        return [one.better_half() for one in self.sizes]

    @cached_property
    def _losses(self) -> Array:
        return np.concatenate([losses for _, losses in self._trials])

    @cached_property
    def _design(self) -> Array:
        """A row for each trial: 1 and z in the columns of its size, z^2 in the last ones."""
        width = 1 + self.sizes[0].points.shape[1]
        rows = []
        for s, (points, losses) in enumerate(self._trials):
            part = np.zeros((len(losses), len(self.sizes) * width + width - 1))
            part[:, s * width] = 1
            part[:, s * width + 1 : (s + 1) * width] = points
            part[:, len(self.sizes) * width :] = points**2
            rows.append(part)
        return np.concatenate(rows)

    @cached_property
    def _solve(self) -> Array:
        return np.linalg.pinv(self._design)

    @cached_property
    def _coefficients(self) -> Array:
        return self._solve @ self._losses

    @cached_property
    def _tried(self) -> tuple[Array, Array]:
        """The lowest and the highest values that were tried, each (sizes, parameters)."""
        points = [one.points for one in self.sizes]
        return np.array([p.min(0) for p in points]), np.array([p.max(0) for p in points])

    def _at_best(self, coefficients: Array) -> tuple[Array, Array]:
        """The best points (sizes, parameters), near what was tried, and the losses (sizes,)."""
        parameters = self.sizes[0].points.shape[1]
        of_size = coefficients[:-parameters].reshape(len(self.sizes), -1)
        curvature = np.maximum(coefficients[-parameters:], 1e-12)
        slopes, (low, high) = of_size[:, 1:], self._tried
        best = np.clip(-slopes / (2 * curvature), 2 * low - high, 2 * high - low)
        return best, of_size[:, 0] + (slopes * best + curvature * best**2).sum(1)

    @property
    def curvature(self) -> Array:
        """Of each parameter; one without an optimum has none above 0."""
        return self._coefficients[-self.sizes[0].points.shape[1] :]

    @cached_property
    def best(self) -> Array:
        """The optimum on the scale of `points`; (sizes, parameters)."""
        return self._at_best(self._coefficients)[0]

    @cached_property
    def losses(self) -> Array:
        """The loss at the optimum; (sizes,)."""
        return self._at_best(self._coefficients)[1]

    @property
    def is_inside(self) -> NDArray[np.bool_]:
        """Whether it lies among the values that were tried; (sizes, parameters)."""
        low, high = self._tried
        return (low <= self.best) & (self.best <= high)

    @cached_property
    def replicates(self) -> Array:
        """Optima of bootstrap replicates, with residuals drawn again for all trials; (replicates,
        sizes, parameters)."""
        rng = np.random.default_rng(0)
        count, fitted = len(self._losses), self._design @ self._coefficients
        free = count - np.linalg.matrix_rank(self._design)
        residuals = (self._losses - fitted) * math.sqrt(count / max(1, free))
        drawn = fitted + rng.choice(residuals, (_REPLICATES, count))
        return np.array([self._at_best(self._solve @ losses)[0] for losses in drawn])
