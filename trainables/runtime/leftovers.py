"""Threads, processes, process groups and memory that a trial leaves behind in its process."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

_END_S, _POLL_S = 1.0, 0.02
"""Time that threads and processes have to end by themselves."""
_LIBRARY_THREADS = frozenset({"TMonitor", "fsspecIO", "_DummyThread"})
"""Threads, by class or name, that tqdm, fsspec and native code have once in each process."""
_LIBRARY_PROCESSES = ("multiprocessing.resource_tracker", "torch/_inductor/compile_worker")


class Leftovers:
    """What this process has before a trial, to be compared with what it has after it."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._processes = set(psutil.Process().children(recursive=True))
        self._group = _group()

    @property
    def has_lost_group(self) -> bool:
        """Whether the process group of the workers was destroyed, or replaced by another one."""
        return _group() is not self._group

    def find(self) -> str | None:
        """Threads and processes that the trial has left, in words; the processes are ended."""
        until = time.monotonic() + _END_S
        while (self._new_threads() or self._new_processes()) and time.monotonic() < until:
            time.sleep(_POLL_S)
        found = [f"thread {thread.name}" for thread in self._new_threads()]
        for process in self._new_processes():
            with suppress(psutil.Error):
                found.append(f"process {process.pid} ({process.name()})")
                process.kill()
        return f"left behind: {', '.join(found)}" if found else None

    def _new_threads(self) -> list[threading.Thread]:
        new = set(threading.enumerate()) - self._threads
        return [t for t in new if not {type(t).__name__, t.name} & _LIBRARY_THREADS]

    def _new_processes(self) -> list[psutil.Process]:
        new = set(psutil.Process().children(recursive=True)) - self._processes
        return [process for process in new if _is_trials(process)]


def _group() -> object:
    return dist.group.WORLD if dist.is_initialized() else None


def _is_trials(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
    return not ended and not any(name in command for name in _LIBRARY_PROCESSES)


_STATUS = Path("/proc/self/status")
_MAPS = Path("/proc/self/maps")
_MIB = 2**20


@dataclass(frozen=True)
class MemorySample:
    """Memory that this process holds, in bytes.

    Attributes:
        host: anonymous memory; mapped files, such as a data set, do not count.
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
        weights: its tensors, which a trial may move to its device.
    """

    key: Hashable = None
    value: Any = None
    weights: Sequence[torch.Tensor] = ()

    def keep(self, key: Hashable, value: Any, weights: Sequence[torch.Tensor] = ()) -> None:
        """Keep a value in place of the one before."""
        self.key, self.value, self.weights = key, value, weights

    def memory(self) -> MemorySample:
        """Of its weights, without those that are a part of a mapped file."""
        files = _mapped_files() if self.weights else []
        here = [w for w in self.weights if w.is_cpu and not any(w.data_ptr() in f for f in files)]
        there = [w for w in self.weights if w.is_cuda]
        return MemorySample(sum(w.nbytes for w in here), sum(w.nbytes for w in there))


def _mapped_files() -> list[range]:
    """Addresses of the files that are mapped, but for libraries."""
    lines = _MAPS.read_text().splitlines() if _MAPS.exists() else []
    spans = [line.split()[0] for line in lines if "/" in line and ".so" not in line]
    return [range(*(int(bound, 16) for bound in span.split("-"))) for span in spans]


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
    """Return freed memory to the system, then measure what is not `KEPT`."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # glibc's
        trim(0)
    kept = KEPT.memory()
    return MemorySample(_anonymous() - kept.host, _on_device(device) - kept.device)


def _on_device(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _anonymous() -> int:
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)
