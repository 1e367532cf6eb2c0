"""Extrapolates the loss against compute: `L = E + A C^-alpha` (Hoffmann et al., 2203.15556)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from results.analysis.scaling.optimum import LEVEL, Array, Interval

NEEDED = 4
"""Points of a frontier without which the law is not fitted: it has three numbers."""
_EXPONENTS = np.geomspace(0.005, 2, 200)


@dataclass(frozen=True)
class LossLaw:
    """`floor + scale (C / unit)^-exponent`, and what it says of a compute.

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

    def __str__(self) -> str:
        law = f"{self.floor:.3g} + {self.scale:.3g} C^-{self.exponent:.2g}"
        return f"{law}, at {self.at / self.unit:.3g} times the largest compute"


def frontier(compute: Array, losses: Array) -> Array:
    """Places of the points that no point of less compute beats, by ascending compute."""
    order = np.lexsort((losses, compute))
    before = np.minimum.accumulate([np.inf, *losses[order][:-1]])
    return order[losses[order] < before]


def fit_loss_law(compute: Array, losses: Array, at: float) -> LossLaw:
    """Fit the law to the points of a frontier, at least `NEEDED`, by least squares.

    The interval is that of the profile likelihood: all losses at `at` which some exponent, floor
    and scale explain nearly as well as the best ones, by the F distribution. It includes the noise
    of one measurement.
    """
    from scipy.optimize import nnls
    from scipy.stats import f

    unit, fits = float(compute.max()), []
    for exponent in _EXPONENTS:
        design = np.column_stack([np.ones(len(losses)), (compute / unit) ** -exponent])
        row = np.array([1.0, (at / unit) ** -exponent])
        factors, error = nnls(design, losses)
        variance = 1 + row @ np.linalg.pinv(design.T @ design) @ row  # in units of the noise's
        fits.append((error**2, exponent, factors, row @ factors, variance))
    rss, exponent, (floor, scale), loss, _ = min(fits, key=lambda fit: fit[0])
    free = len(losses) - 3
    limit = rss * (1 + f.ppf(LEVEL, 1, free) / free)
    near = [(x, np.sqrt((limit - r) * variance)) for r, _, _, x, variance in fits if r <= limit]
    low, high = min(x - spread for x, spread in near), max(x + spread for x, spread in near)
    interval = Interval(float(loss), max(0.0, float(low)), float(high))
    return LossLaw(float(floor), float(scale), float(exponent), unit, at, interval)
