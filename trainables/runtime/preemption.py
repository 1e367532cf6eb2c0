"""Handles SIGTERM and notices: at the next report the ranks agree, save a checkpoint and leave.

The handler only records the signal, and restores the previous handler for a second SIGTERM.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

_requested = threading.Event()
_why = ""


class Preempted(Exception):
    """The process was asked to terminate; its trial resumes elsewhere from the last checkpoint."""


def preemption_requested() -> bool:
    """Whether this process was asked to leave: by SIGTERM, or by `request_preemption`."""
    return _requested.is_set()


def request_preemption(why: str) -> None:
    """Let the trial of this process leave at its next report."""
    global _why
    _why = why
    _requested.set()


def _forget() -> None:
    global _why
    _why = ""
    _requested.clear()


def preemption_reason() -> str:
    """Why this process was asked to leave; of a rank that was not: why another one was."""
    return _why or "a process got SIGTERM, or its machine is taken away"


def install_sigterm_handler() -> Callable[[], None]:
    """Record SIGTERM from now on. Main thread only.

    Returns:
        A function that restores the old handler and clears the recorded signal.
    """
    before: Any = signal.getsignal(signal.SIGTERM)

    def note(signum: int, frame: FrameType | None) -> None:
        request_preemption("a process got SIGTERM")
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)

    def restore() -> None:
        signal.signal(signal.SIGTERM, before)
        _forget()

    return restore


def install_sigterm_handler_deferred() -> None:
    """Install the SIGTERM handler from another thread than the main one, as Ray Train needs it.

    The interpreter runs a pending call as soon as the main thread runs any Python; under Ray Train
    that is its next poll.
    """
    ctypes.pythonapi.Py_AddPendingCall(_IN_MAIN_THREAD, None)


def _install(_: int | None) -> int:
    install_sigterm_handler()
    return 0


_IN_MAIN_THREAD = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_install)


_INTERVAL_S = 5.0
"""Clouds give 30 seconds; an exchange between ranks waits for their devices."""

SumAll = Callable[[Mapping[str, float]], Mapping[str, float]]


class LeaveCheck:
    """Counts steps. The ranks exchange what they know at the same steps, about every five seconds.

    Args:
        sum_all: the sums over all ranks of each value.
        world_size: number of ranks.
    """

    def __init__(self, sum_all: SumAll, world_size: int) -> None:
        self._sum_all, self._world_size = sum_all, world_size
        self._steps, self._every = 0, 1
        self._since = time.perf_counter()

    def step(self) -> bool:
        """Whether all ranks leave after this step; the same on every rank."""
        self._steps += 1
        if self._world_size == 1:
            return preemption_requested()
        if self._steps < self._every:
            return False
        now = time.perf_counter()
        said = {"leave": float(preemption_requested()), "seconds": now - self._since}
        summed = self._sum_all(said)
        each = summed["seconds"] / self._world_size / self._steps
        self._every = max(1, min(2 * self._every, int(_INTERVAL_S / max(each, 1e-9))))
        self._steps, self._since = 0, now
        return summed["leave"] > 0
