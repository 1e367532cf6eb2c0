"""Threads, processes and process groups that a trial of unknown code leaves behind."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import psutil
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
