"""Detects trials that leave memory behind in a process that runs many trials."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_STATUS = Path("/proc/self/status")
_MIB = 2**20


@dataclass(frozen=True)
class MemorySample:
    """Memory that this process holds, in bytes.

    Attributes:
        host: anonymous memory; mapped files, such as a data set, do not count, nor what is `KEPT`.
        device: tensors on the GPU; 0 on a CPU.
    """

    host: int
    device: int


@dataclass
class KeptValue:
    """One value that this process keeps from trial to trial on purpose, which is no leak.

    Attributes:
        key: of all that it depends on.
        value: None: nothing is kept.
        size: of its host memory, in bytes.
    """

    key: Hashable = None
    value: Any = None
    size: int = 0

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value in place of the one before."""
        self.key, self.value, self.size = key, value, size


KEPT = KeptValue()


class LeakDetector:
    """Compares a process's memory after each trial with that after its first trial.

    The first trial that does not fail is the baseline, because it allocates what stays on purpose:
    imports, prepared data, the allocators' pools.

    Args:
        device: the device of the process.
        limit: growth in bytes, of either kind, that is not a leak.
    """

    def __init__(self, device: torch.device, limit: int) -> None:
        self._device, self._limit = device, limit
        self._baseline: MemorySample | None = None

    def after_trial(self, *, failed: bool = False) -> str | None:
        """Free what can be freed, and measure. Returns one line about a leak, or None."""
        gc.collect()  # frees reference cycles of the trial
        now = measure(self._device)
        if self._baseline is None:
            if failed:  # perhaps before its imports
                return None
            self._baseline = now
            gc.freeze()  # imported objects stay: collecting them again would cost 0.1 s
        return describe_growth(self._baseline, now, self._limit)


def describe_growth(baseline: MemorySample, now: MemorySample, limit: int) -> str | None:
    """One line about the kinds of memory that grew beyond the limit, or None."""
    grown = {
        "host memory": (baseline.host, now.host),
        "device memory": (baseline.device, now.device),
    }
    lines = [
        f"{(after - before) / _MIB:.0f} MiB of {kind} beyond the {before / _MIB:.0f} MiB"
        " after the first trial"
        for kind, (before, after) in grown.items()
        if after - before > limit
    ]
    return ", ".join(lines) or None


def measure(device: torch.device) -> MemorySample:
    """Return freed memory to the system, then measure."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)
    return MemorySample(_anonymous() - KEPT.size, _on_device(device))


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
