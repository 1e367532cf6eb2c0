"""SIGTERM to a worker: the ranks agree at the next report, save, and leave, within the grace time.

The handler only notes that it was asked to go. A second SIGTERM does what it did before.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_asked = threading.Event()


class Preempted(Exception):
    """The process was told to go; its trial goes on elsewhere, from the checkpoint it left."""


def preemption_requested() -> bool:
    """Whether this process was sent a SIGTERM."""
    return _asked.is_set()


def install_sigterm_handler() -> Callable[[], None]:
    """Note SIGTERM from now on; main thread only. Returns what puts the old handler back."""
    before: Any = signal.getsignal(signal.SIGTERM)

    def note(signum: int, frame: FrameType | None) -> None:
        _asked.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)

    def restore() -> None:
        signal.signal(signal.SIGTERM, before)
        _asked.clear()

    return restore


def install_sigterm_handler_deferred() -> None:
    """Install the SIGTERM handler from another thread than the main one, as Ray Train needs it.

    The interpreter runs a pending call in the main thread as soon as that one runs any Python,
    which under Ray Train is its next poll.
    """
    ctypes.pythonapi.Py_AddPendingCall(_IN_MAIN_THREAD, None)


def _install(_: int | None) -> int:
    install_sigterm_handler()
    return 0


_IN_MAIN_THREAD = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_install)
