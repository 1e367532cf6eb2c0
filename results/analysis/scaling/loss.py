"""Extrapolates the loss against compute: `L = E + A C^-alpha` (Hoffmann et al. 2022, 2203.15556)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from results.analysis.scaling.law import Interval
from results.analysis.scaling.optimum import LEVEL, Array

NEEDED = 4
"""Points of a frontier without which the law is not fitted: it has three numbers."""
_EXPONENTS = np.geomspace(0.005, 2, 200)


@dataclass(frozen=True)
class LossLaw:
    """`L = floor + scale * (C / unit)^-exponent`, and what it says of a compute.

    Attributes:
        unit: the largest compute of the frontier (FLOP).
        at: the compute of the forecast (FLOP).
        loss: there, with the interval of a new measurement.
    """

    floor: float
    scale: float
    exponent: float
    unit: float
    at: float
    loss: Interval

    def curve(self, compute: Array) -> Array:
        """The loss at each compute."""
        return self.floor + self.scale * (compute / self.unit) ** -self.exponent


def frontier(compute: Array, losses: Array) -> Array:
    """Places of the points that no point of less compute beats, by ascending compute."""
    order = np.lexsort((losses, compute))
    lowest = np.minimum.accumulate(np.concatenate([[np.inf], losses[order][:-1]]))
    return order[losses[order] < lowest]


def fit_loss_law(compute: Array, losses: Array, at: float) -> LossLaw:
    """Fit the law to the points of a frontier, at least `NEEDED`, by least squares.

    The interval is that of the profile likelihood: all losses at `at` that some floor >= 0, scale
    >= 0 and exponent explain nearly as well as the best ones, by the F distribution. It includes
    the noise of one measurement.
    """
    from scipy.stats import f

    unit = float(compute.max())
    fits = [_fit(e, compute / unit, losses, at / unit) for e in _EXPONENTS]
    best = min(fits, key=lambda fit: fit.rss)
    free = len(losses) - 3
    slack = best.rss * (1 + f.ppf(LEVEL, 1, free) / free)
    spreads = [(fit, np.sqrt(max(0.0, slack - fit.rss) * fit.leverage)) for fit in fits]
    near = [(fit.loss, spread) for fit, spread in spreads if fit.rss <= slack]
    low, high = min(loss - s for loss, s in near), max(loss + s for loss, s in near)
    interval = Interval(best.loss, max(0.0, low), high)
    return LossLaw(best.floor, best.scale, best.exponent, unit, at, interval)


@dataclass(frozen=True)
class _Fit:
    """The best law of one exponent: its squared error, and the variance of a new loss in units of
    the noise's."""

    exponent: float
    floor: float
    scale: float
    rss: float
    loss: float
    leverage: float


def _fit(exponent: float, compute: Array, losses: Array, at: float) -> _Fit:
    from scipy.optimize import nnls

    design = np.column_stack([np.ones(len(losses)), compute**-exponent])
    row = np.array([1.0, at**-exponent])
    (floor, scale), error = nnls(design, losses)
    leverage = 1 + row @ np.linalg.pinv(design.T @ design) @ row
    loss = floor + scale * row[1]
    return _Fit(float(exponent), float(floor), float(scale), error**2, float(loss), float(leverage))
