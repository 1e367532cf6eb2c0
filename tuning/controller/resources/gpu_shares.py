"""Decides how many trials share a GPU, from what trials have measured; pure functions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median

from pydantic import BaseModel, ConfigDict, ValidationError

from results.paths import SweepPaths
from search_spaces.files import read_regular
from tuning.controller.resources.placement import workers_per_gpu

SHARES = (1.0, 0.5, 0.33, 0.25)
"""Parts of a GPU; each is tried once the one before is kept."""
_LARGER = {smaller: larger for larger, smaller in pairwise(SHARES)}
IDLE, GAIN, ALIKE = 1 / 3, 1.1, 1.5
"""A GPU that is idle for longer is shared by more trials; a share is kept if all trials of a GPU
together train so many times as fast; where trials alone differ by more, that would not be seen."""
_FEWEST = 2


class Measurement(BaseModel):
    """What a trial measured while as many trials used its GPU as have room there.

    Attributes:
        share: part of a GPU that each of them had.
        idle: part of the time in which the GPU computed for none of them.
        memory: part of the GPU's memory that the trial needed.
        rate, unit: what the trial trained, such as tokens/s.
    """

    model_config = ConfigDict(frozen=True)

    share: float
    idle: float
    memory: float
    rate: float
    unit: str


class GpuShares(BaseModel):
    """The state of a sweep's measurement: `gpu_shares.json`.

    Attributes:
        share: that the next trials have.
        settled: whether it stays.
        measured: oldest first.
        decisions: a line for each change of the share, and why it stays.
    """

    model_config = ConfigDict(frozen=True)

    share: float = 1.0
    settled: bool = False
    measured: tuple[Measurement, ...] = ()
    decisions: tuple[str, ...] = ()

    @classmethod
    def read(cls, paths: SweepPaths) -> GpuShares:
        """That of a sweep; a new one if there is none, or none that can be read, which it says."""
        try:
            return cls.model_validate_json(read_regular(paths.gpu_shares))
        except FileNotFoundError:
            return cls()
        except (OSError, ValidationError):
            line = f"GPUs: {paths.gpu_shares.name} cannot be read, so shares are measured again"
            return cls(decisions=(line,))

    def measured_with(self, share: float) -> list[Measurement]:
        """The measurements with a share."""
        return [m for m in self.measured if m.share == share]

    def gpu_rate(self, share: float) -> float:
        """What all trials on a GPU train together, such as tokens per second."""
        return workers_per_gpu(share) * median(m.rate for m in self.measured_with(share))

    def decided(self, line: str, share: float, *, settled: bool) -> GpuShares:
        """The state after a decision, which the line explains."""
        lines = (*self.decisions, f"GPUs: gpus_per_worker {line}")
        return self.model_copy(update={"share": share, "settled": settled, "decisions": lines})


def decide(now: GpuShares, concurrency: Callable[[float], int]) -> GpuShares:
    """The state after the newest measurement; the same while more trials have to measure.

    Args:
        now: with that measurement.
        concurrency: number of trials that run at once with a share.
    """
    if now.settled or len(now.measured_with(now.share)) < max(_FEWEST, workers_per_gpu(now.share)):
        return now
    if now.share < 1:
        old, new = now.gpu_rate(_LARGER[now.share]), now.gpu_rate(now.share)
        told = f"a GPU trains {new:.4g} {now.measured[-1].unit}, {new / old:.2f} times as much"
        if new < GAIN * old:
            return undo(now, now.share, told)
        now = now.decided(f"{now.share:g} kept: {told}", now.share, settled=now.share == SHARES[-1])
    return now if now.settled else _try_smaller(now, concurrency)


def _try_smaller(now: GpuShares, concurrency: Callable[[float], int]) -> GpuShares:
    """The next smaller share, or why it is not tried."""
    smaller, alone = max(s for s in SHARES if s < now.share), now.measured_with(1.0)
    idle = median(m.idle for m in now.measured_with(now.share))
    memory, rates = max(m.memory for m in now.measured), [m.rate for m in alone]
    if idle <= IDLE:
        problem = f"a GPU is idle for {idle:.0%} of the time"
    elif memory > smaller:
        problem = f"a trial needs {memory:.0%} of a GPU's memory"
    elif concurrency(smaller) <= concurrency(now.share):
        problem = "no more trials would run at once (cpus_per_worker, concurrency)"
    elif max(rates) > ALIKE * min(rates):
        span = f"{min(rates):.4g} to {max(rates):.4g} {alone[0].unit}"
        problem = f"trials differ too much to see a gain ({span}); write the number to share"
    else:
        line = f"{smaller:g} tried: a GPU is idle for {idle:.0%} of the time"
        return now.decided(line, smaller, settled=False)
    return now.decided(f"{smaller:g} not tried: {problem}", now.share, settled=True)


def undo(now: GpuShares, share: float, reason: str) -> GpuShares:
    """The next trials have more than this share, for good."""
    if now.share > share:
        return now
    line = f"{share:g} undone, {_LARGER[share]:g} instead: {reason}"
    return now.decided(line, _LARGER[share], settled=True)
