"""Packing: several conversations in one sequence, as few sequences as a greedy rule finds."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack items into bins by best fit decreasing (Johnson 1973; Ding et al. 2024 for sequences).

    Args:
        lengths: of the items, each at most `capacity`.
        capacity: of a bin.

    Returns:
        The numbers of the items of each bin.
    """
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (free, bin), ascending
    for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        place = bisect_left(room, (lengths[item], 0))
        if place == len(room):
            free, number = capacity, len(bins)
            bins.append([])
        else:
            free, number = room.pop(place)
        bins[number].append(item)
        insort(room, (free - lengths[item], number))
    return bins
