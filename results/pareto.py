"""Order among trials with several objectives: fronts of non-domination, and crowding."""

from __future__ import annotations

import math
from collections.abc import Sequence

_WORST = -1e200  # finite, so that percentiles and means of such values are numbers


def fronts(scores: Sequence[Sequence[float]]) -> list[int]:
    """The front of each point, 0 for those that no other dominates (Deb et al. 2002, NSGA-II).

    Args:
        scores: (points, objectives), higher is better; what is no number is the worst.

    Returns:
        One number per point. Equal points are on the same front.
    """
    import numpy as np

    if not len(scores):
        return []
    points = np.array([[_number(v) for v in row] for row in scores], dtype=float)
    at_least = np.all(points[:, None, :] >= points[None, :, :], axis=2)
    dominates = np.logical_and(at_least, np.logical_not(at_least.T))
    front = np.full(len(points), -1)
    for level in range(len(points)):
        left = front < 0
        if not left.any():
            break
        front[left & ~np.any(dominates[left], axis=0)] = level
    return [int(f) for f in front]


def crowding(scores: Sequence[Sequence[float]]) -> list[float]:
    """How far each point of one front is from its neighbours; ends are infinitely far (NSGA-II)."""
    distance = [0.0] * len(scores)
    for objective in zip(*scores, strict=True):
        order = sorted(range(len(objective)), key=objective.__getitem__)
        low, high = _number(objective[order[0]]), _number(objective[order[-1]])
        for end in (order[0], order[-1]):
            distance[end] = math.inf
        if high > low:
            for before, at, after in zip(order, order[1:], order[2:], strict=False):
                gap = _number(objective[after]) - _number(objective[before])
                distance[at] += gap / (high - low)
    return distance


def merits(scores: Sequence[Sequence[float]]) -> list[float]:
    """One number per point, higher is better, by which trials are compared.

    With one objective it is the value itself; with several the front counts first, and within a
    front the lonelier point is better, so that the whole front is kept rather than one end of it.
    """
    if not scores or len(scores[0]) == 1:
        return [_number(s[0]) for s in scores]
    levels = fronts(scores)
    merit = [0.0] * len(scores)
    for level in set(levels):
        members = [i for i, at in enumerate(levels) if at == level]
        for i, far in zip(members, crowding([scores[i] for i in members]), strict=True):
            merit[i] = -level + 0.5 * (1.0 if math.isinf(far) else far / (1 + far))
    return merit


def _number(value: float) -> float:
    """A finite number that orders like the value; what is none comes last."""
    return _WORST if math.isnan(value) else max(_WORST, min(value, -_WORST))
