"""How the best value of a parameter follows the size: a constant, or a power law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results.analysis.scaling.optimum import LEVEL, Array


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


def fit_law(
    logs: Array, best: Array, replicates: Array, target: Array
) -> tuple[list[Interval], Interval]:
    """Fit `best = a + b . log(size)`, which is a power law where `best` is a logarithm.

    Args:
        logs: logarithm of each size, for the sizes that it follows; (sizes, axes), perhaps no axis.
        best: (sizes,).
        replicates: of `best`; (replicates, sizes).
        target: logarithm of the target's sizes; (axes,).

    Returns:
        The exponents `b`, and the value at the target. What the law leaves unexplained at the
        measured sizes is drawn for replicates and target, too.
    """
    design = np.column_stack([np.ones(len(best)), logs])
    solve, row = np.linalg.pinv(design), np.concatenate([[1.0], target])
    fitted = solve @ best
    free, rng = len(best) - design.shape[1], np.random.default_rng(0)
    rest = math.sqrt(((best - design @ fitted) ** 2).sum() / free) if free > 0 else 0.0
    noise = rng.normal(0, rest, (len(replicates), len(best) + 1))
    drawn = replicates + noise[:, :-1]
    again = drawn @ solve.T
    values = again @ row + noise[:, -1]
    exponents = [Interval.of(fitted[i], again[:, i]) for i in range(1, len(fitted))]
    return exponents, Interval.of(row @ fitted, values)
