"""Where the time of a trial goes: its bottleneck, and ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from results.records.worker_samples import PHASES

ByRank = Mapping[int, Mapping[str, float]]
"""Seconds of each phase by rank, as `phase_seconds` reads them."""

_LIMITS = {
    "data": (0.15, "give workers more CPUs (resources.cpus_per_worker)"),
    "communication": (
        0.2,
        "raise fixed.batch_size, compress gradients (fixed.communication.compress), or use fewer "
        "workers (resources.workers)",
    ),
    "checkpoint": (0.1, "save less often (checkpoint.every)"),
    "evaluation": (0.3, "evaluate less often (fixed.eval_every), or on less data"),
    "report": (0.2, "report less often; each rank waits for the slowest one"),
}
"""The share of the time after the start from which a phase is a bottleneck, and what changes it."""
_SLOW = 1.2
"""A rank that computes for so many times the others' mean makes them wait."""


def phase_means(by_rank: ByRank) -> dict[str, float]:
    """Seconds of each phase, the mean over the ranks; phases without time are left out."""
    means = {p: fmean(of[p] for of in by_rank.values()) for p in PHASES} if by_rank else {}
    return {phase: seconds for phase, seconds in means.items() if seconds > 0}


def add(many: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of each phase over several trials."""
    total = dict.fromkeys(PHASES, 0.0)
    for one in many:
        for phase, seconds in one.items():
            total[phase] += seconds
    return {phase: seconds for phase, seconds in total.items() if seconds > 0}


def bottleneck(means: Mapping[str, float]) -> str | None:
    """The phase that takes more than it should, and the setting that changes it; None without one.

    Args:
        means: seconds by phase, as `phase_means` gives them.
    """
    whole = sum(seconds for phase, seconds in means.items() if phase != "start")
    shares = {p: means.get(p, 0.0) / whole for p in _LIMITS} if whole else {}
    over = {p: share / _LIMITS[p][0] for p, share in shares.items() if share >= _LIMITS[p][0]}
    if not over:
        return None
    worst = max(over, key=lambda phase: over[phase])
    return f"{worst} takes {shares[worst]:.0%} of the time; {_LIMITS[worst][1]}"


def slow_ranks(by_rank: ByRank) -> Iterator[str]:
    """A line for each rank that computes, or waits for its data, for longer than the others."""
    busy = {rank: of["compute"] + of["data"] for rank, of in by_rank.items()}
    for rank, seconds in busy.items():
        others = [s for other, s in busy.items() if other != rank]
        if others and seconds > _SLOW * fmean(others) > 0:
            times = seconds / fmean(others)
            yield f"rank {rank} is slow: it works for {times:.2f} x the others' time; they wait"
