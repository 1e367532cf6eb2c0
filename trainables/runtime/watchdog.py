"""Ends a rank that neither reports nor sends a heartbeat for too long, after it wrote all stacks to
its log; the trial is retried.

A rank that waits for a stuck one is silent too, and the first rank that ends takes the others with
it. So a thread writes each rank's stacks a little before the limit. The limit itself is enforced by
faulthandler, a thread in C, which also fires while the interpreter is stuck in a library.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time

_STDERR = 2  # `trainables.launch.run_trial.output_to` sends it to the rank's log
_PARTS = 20
_STACKS_AT = 0.85
"""Part of the limit after which a rank writes its stacks."""


class Watchdog:
    """Watches one rank during one trial; without a limit it does nothing."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._armed = float("-inf")
        self._timer: threading.Timer | None = None

    def heartbeat(self) -> None:
        """Restart the timeout. Cheap enough for every step."""
        if self._limit_s is None:
            return
        now = time.monotonic()
        if now - self._armed > self._limit_s / _PARTS:
            faulthandler.dump_traceback_later(self._limit_s, exit=True, file=_STDERR)
            self._schedule_stacks(_STACKS_AT * self._limit_s)
            self._armed = now

    def suspend(self) -> None:
        """Suspend the timeout while waiting for the driver."""
        if self._limit_s is not None:
            faulthandler.cancel_dump_traceback_later()
            self._cancel_stacks()
            self._armed = float("-inf")

    def _schedule_stacks(self, after_s: float) -> None:
        self._cancel_stacks()
        self._timer = threading.Timer(after_s, write_stacks, (after_s,))
        self._timer.daemon = True
        self._timer.start()

    def _cancel_stacks(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def write_stacks(silent_s: float) -> None:
    """Write the stacks of all threads to the rank's log."""
    os.write(_STDERR, f"no sign of life for {silent_s:.0f} s; all threads:\n".encode())
    faulthandler.dump_traceback(file=_STDERR)
