"""Ranking with several objectives: non-dominated fronts and crowding distance (NSGA-II).

Reported values may be as large as a float can be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from operator import le

MAX_COMPARED = 1e100
"""Sums, squares and products of three of such values are still finite."""


def comparable(value: float) -> float:
    """A number to compute with, in the same order as the value; NaN is the lowest.

    Greater magnitudes than `MAX_COMPARED` are that number.
    """
    return -MAX_COMPARED if math.isnan(value) else max(-MAX_COMPARED, min(value, MAX_COMPARED))


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value, also where the sum is beyond the range of floats."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return float(statistics.mean(values))


Point = Mapping[str, float]
"""A trial's value of each objective."""


def front_numbers(scores: Sequence[Sequence[float]]) -> list[int]:
    """Front number of each point, 0 for non-dominated points (Deb et al. 2002, NSGA-II).

    Args:
        scores: (points, objectives), higher is better; NaN is the worst value.

    Returns:
        One number per point. Equal points are on the same front.
    """
    import numpy as np

    if not len(scores):
        return []
    points = np.array([[comparable(v) for v in row] for row in scores], dtype=float)
    at_least = np.all(points[:, None, :] >= points[None, :, :], axis=2)
    dominates = np.logical_and(at_least, np.logical_not(at_least.T))
    front = np.full(len(points), -1)
    for level in range(len(points)):
        left = front < 0
        if not left.any():
            break
        front[left & ~np.any(dominates[left], axis=0)] = level
    return [int(f) for f in front]


def crowding_distance(scores: Sequence[Sequence[float]]) -> list[float]:
    """Distance of each point of one front to its neighbours; infinite at the ends (NSGA-II)."""
    distance = [0.0] * len(scores)
    for objective in zip(*scores, strict=True):
        order = sorted(range(len(objective)), key=objective.__getitem__)
        low, high = comparable(objective[order[0]]), comparable(objective[order[-1]])
        for end in (order[0], order[-1]):
            distance[end] = math.inf
        if high > low:
            for before, at, after in zip(order, order[1:], order[2:], strict=False):
                gap = comparable(objective[after]) - comparable(objective[before])
                distance[at] += gap / (high - low)
    return distance


def scalar_merits(scores: Sequence[Sequence[float]]) -> list[float]:
    """One number per point to compare trials by; higher is better.

    With one objective it is the score. With several, lower fronts are better, and within a front
    points with a larger crowding distance, so that the kept points cover the whole front.
    """
    if not scores or len(scores[0]) == 1:
        return [comparable(s[0]) for s in scores]
    levels = front_numbers(scores)
    merit = [0.0] * len(scores)
    for level in set(levels):
        members = [i for i, at in enumerate(levels) if at == level]
        for i, far in zip(members, crowding_distance([scores[i] for i in members]), strict=True):
            merit[i] = -level + 0.5 * (1.0 if math.isinf(far) else far / (1 + far))
    return merit


def non_dominated(points: Sequence[Point], modes: Mapping[str, str]) -> list[int]:
    """Indices of the non-dominated points."""
    costs = [tuple(cost(p[name], mode) for name, mode in modes.items()) for p in points]

    def dominated(mine: tuple[float, ...]) -> bool:
        return any(other != mine and all(map(le, other, mine)) for other in costs)

    return [i for i, mine in enumerate(costs) if not dominated(mine)]


def rank_front(
    points: Sequence[Point], modes: Mapping[str, str], rule: str, weights: Mapping[str, float]
) -> list[int]:
    """Indices of the non-dominated points, best first; ties in the order given.

    Args:
        points: finite values of each objective.
        modes: `min` or `max` of each objective.
        rule: `knee`, the least distance to the best value of every objective, or `weighted`, the
            least weighted sum. Objectives are scaled to 0..1 over the front.
        weights: for the weighted rule; objectives that are missing weigh 1.
    """
    front, scaled = non_dominated(points, modes), dict[str, list[float]]()
    for name, mode in modes.items():
        costs = [cost(comparable(points[i][name]), mode) for i in front]
        spread = (max(costs) - min(costs)) or 1.0
        scaled[name] = [(value - min(costs)) / spread for value in costs]

    def total_cost(place: int) -> float:
        if rule == "knee":
            return math.hypot(*(parts[place] for parts in scaled.values()))
        return sum(weights.get(name, 1.0) * parts[place] for name, parts in scaled.items())

    return [front[place] for place in sorted(range(len(front)), key=total_cost)]


def cost(value: float, mode: str) -> float:
    """The value if less is better, otherwise its negative."""
    return -value if mode == "max" else value
