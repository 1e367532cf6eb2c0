"""The phases of a rehearsal in which ranks talk to each other; all of them take part.

Sizes are in MB (10^6 bytes).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

import torch
import torch.distributed as dist

from tuning.doctor.settings import Measured

ALL_REDUCE_BYTES = 25_000_000
_LINK_BYTES = 1_000_000
_PINGS, _REPEATS = 5, 3
_MB = 1e6


class RankView(Protocol):
    """This worker among the others, and the device of its messages."""

    rank: int
    world_size: int
    device: torch.device


def clock(me: RankView) -> Measured:
    """On rank 0: how far the clock of each rank is ahead (Cristian 1989), in seconds."""
    stamp = torch.zeros(1, dtype=torch.float64, device=me.device)
    if me.rank:
        for _ in range(_PINGS):
            dist.recv(stamp, 0)
            stamp.fill_(time.time())
            dist.send(stamp, 0)
        return {}
    return {"clock_ahead": [_ahead(stamp, other) for other in range(1, me.world_size)]}


def _ahead(stamp: torch.Tensor, other: int) -> float:
    """Of the exchange that took the shortest time: its middle is the best guess."""
    found = []
    for _ in range(_PINGS):
        begun = time.time()
        dist.send(stamp, other)
        dist.recv(stamp, other)
        their, ended = float(stamp), time.time()
        found.append((ended - begun, their - (begun + ended) / 2))
    return min(found)[1]


def links(me: RankView) -> Measured:
    """Round trip (ms) and speed (MB/s) to each rank above this one; one pair per rank at a time."""
    found: dict[str, list[float]] = {}
    for pairs in rounds(me.world_size):
        dist.barrier()
        for low, high in pairs:
            if me.rank in (low, high):
                other = high if me.rank == low else low
                trip = _best(me, other, 1, _PINGS)
                there_and_back = _best(me, other, _LINK_BYTES // 4, _REPEATS)
                if me.rank == low:
                    speed = 2 * _LINK_BYTES / _MB / there_and_back
                    found[str(high)] = [trip * 1e3, speed]
    return {"links": found}


def rounds(size: int) -> Iterator[list[tuple[int, int]]]:
    """All pairs of ranks, in rounds in which each rank has at most one pair (circle method)."""
    places = list(range(size + size % 2))
    half = len(places) // 2
    for _ in range(len(places) - 1):
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        yield [(min(pair), max(pair)) for pair in pairs if max(pair) < size]
        places = [places[0], places[-1], *places[1:-1]]


def _best(me: RankView, other: int, numbers: int, repeats: int) -> float:
    """The shortest time in which a message goes to a rank and comes back; the first is dropped."""
    tensor = torch.zeros(numbers, device=me.device)
    ways = (dist.send, dist.recv) if me.rank < other else (dist.recv, dist.send)
    times = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        for way in ways:
            way(tensor, other)
        _finish(me)
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def all_reduce(me: RankView) -> Measured:
    """The best of three sums of 25 MB over all ranks; bus bandwidth as NCCL's tests define it."""
    n, times = me.world_size, []
    for _ in range(_REPEATS + 1):
        values = torch.full((ALL_REDUCE_BYTES // 4,), me.rank + 1.0, device=me.device)
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(values)
        _finish(me)
        times.append(time.perf_counter() - begun)
    best = min(times[1:])
    return {
        "all_reduce_time": best,
        "all_reduce_mb_per_s": 2 * (n - 1) / n * ALL_REDUCE_BYTES / _MB / best,
        "all_reduce_right": bool((values == n * (n + 1) / 2).all()),
    }


def _finish(me: RankView) -> None:
    if me.device.type == "cuda":
        torch.cuda.synchronize(me.device)


def barrier(me: RankView) -> Measured:
    """Wait for the slowest worker, then measure a barrier to which all come at once."""
    begun = time.perf_counter()
    dist.barrier()
    waited = time.perf_counter()
    dist.barrier()
    return {"wait_time": waited - begun, "barrier_time": time.perf_counter() - waited}
