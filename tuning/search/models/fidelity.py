"""Makes values from different rungs comparable.

A value at a low rung is extrapolated to a higher one: by the median improvement of the trials that
reached both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuning.search.evidence import ScoreCurve

Array = NDArray[np.float64]

_MIN_PAIRS = 4
_MIN_CORRELATION = 0.0
_MOST = 1e100
"""Magnitude of values, of which models compute squares; more than that has diverged anyway."""


@dataclass(frozen=True)
class Comparable:
    """Values of trials at each level that they reached, shifted to a common level.

    Attributes:
        index: (n,), number of the curve, ascending.
        level: (n,), level of the value before the shift, from 0; ascending within a curve.
        value: (n,), shifted to `target`; higher is better.
        target: the highest level that at least `_MIN_PAIRS` trials reached.
        misleads: whether the order at some level contradicts the order at the next.
    """

    index: NDArray[np.int64]
    level: NDArray[np.int64]
    value: Array
    target: int
    misleads: bool

    def newest(self) -> tuple[NDArray[np.int64], Array]:
        """Number of each curve, and its shifted value from the highest level that it reached."""
        last = np.append(np.diff(self.index) > 0, True)[: len(self.index)]
        return self.index[last], self.value[last]


def comparable(curves: Sequence[ScoreCurve], levels: Sequence[float]) -> Comparable:
    """Shift the values of trials to the highest level that at least `_MIN_PAIRS` trials reached.

    Lower levels are dropped from the first one, going down, whose order contradicts the next.

    Args:
        curves: of the trials.
        levels: ascending; if empty, the last value of each trial is used unchanged.
    """
    table = _table(curves, levels)
    reached = np.isfinite(table).sum(axis=0)
    target = int(max(np.flatnonzero(reached >= _MIN_PAIRS), default=0))
    shift, trusted, misleads = _level_shifts(table, target)
    index, level = np.nonzero(np.isfinite(table[:, trusted : target + 1]))
    level += trusted
    return Comparable(index, level, table[index, level] + shift[level], target, misleads)


def _table(curves: Sequence[ScoreCurve], levels: Sequence[float]) -> Array:
    """(trials, levels), the first value at or beyond each level; NaN if there is none."""
    table = np.full((len(curves), max(1, len(levels))), np.nan)
    for row, curve in zip(table, curves, strict=True):
        if not curve:
            continue
        steps = sorted(curve)
        if not levels:
            row[0] = curve[steps[-1]]
        for k, level in enumerate(levels):
            at = bisect_left(steps, level)
            if at < len(steps):
                row[k] = curve[steps[at]]
    return np.asarray(np.clip(table, -_MOST, _MOST))


def _level_shifts(table: Array, target: int) -> tuple[Array, int, bool]:
    """The shift of each level, the lowest usable level, and whether a level misleads."""
    shift, trusted, misleads = np.zeros(target + 1), 0, False
    for k in range(target - 1, -1, -1):
        both = table[np.isfinite(table[:, k]) & np.isfinite(table[:, k + 1])]
        known = len(both) >= _MIN_PAIRS
        shift[k] = shift[k + 1] + (np.median(both[:, k + 1] - both[:, k]) if known else 0.0)
        if not misleads and _contradict(both[:, k], both[:, k + 1]):
            trusted, misleads = k + 1, True
    return shift, trusted, misleads


def _contradict(lower: Array, upper: Array) -> bool:
    """Whether the order at a rung correlates negatively with the order at the next."""
    if len(lower) < 2 * _MIN_PAIRS or np.ptp(lower) == 0 or np.ptp(upper) == 0:
        return False
    return rank_correlation(lower, upper) < _MIN_CORRELATION


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's rank correlation; `scipy.stats` takes a second to import."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Array) -> Array:
    """Ranks from 1; ties share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])
