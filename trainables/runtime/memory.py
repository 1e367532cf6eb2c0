"""Whether trials leave memory behind in a process that runs one after another."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_STATUS = Path("/proc/self/status")
_MIB = 2**20


@dataclass(frozen=True)
class MemorySample:
    """Bytes that this process holds.

    Attributes:
        host: anonymous memory; files that are mapped, such as a data set, do not count.
        device: tensors on its GPU; 0 on a CPU.
    """

    host: int
    device: int


class LeakDetector:
    """Compares what a process holds after each trial with what it held after its first one.

    The first trial that does not fail is the baseline, because it brings what is meant to stay:
    imports, prepared data, the allocators' pools.

    Args:
        device: that the process computes on.
        limit: bytes of growth, of either kind, that are not called a leak.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        self._device, self._limit = device, limit
        self._baseline: MemorySample | None = None

    def after_trial(self, *, failed: bool = False) -> str | None:
        """Free what can be freed, and measure; says how much was left behind if it is too much."""
        gc.collect()  # what the trial held in cycles is gone before the next one begins
        now = held(self._device)
        if self._baseline is None:
            if failed:  # perhaps before it imported anything
                return None
            self._baseline = now
            gc.freeze()  # what is imported by now stays: looking at it again would cost 0.1 s
        return leak(self._baseline, now, self._limit)


def leak(baseline: MemorySample, now: MemorySample, limit: int) -> str | None:
    """One line on what grew beyond the limit, or None."""
    grown = {
        "host memory": (baseline.host, now.host),
        "device memory": (baseline.device, now.device),
    }
    said = [
        f"{(after - before) / _MIB:.0f} MiB of {kind} beyond the {before / _MIB:.0f} MiB"
        " after the first trial"
        for kind, (before, after) in grown.items()
        if after - before > limit
    ]
    return ", ".join(said) or None


def held(device: torch.device) -> MemorySample:
    """What this process holds now, freed memory given back to the system first."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)
    return MemorySample(_anonymous(), _on_device(device))


def _on_device(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _anonymous() -> int:
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    import psutil

    return int(psutil.Process().memory_info().rss)
