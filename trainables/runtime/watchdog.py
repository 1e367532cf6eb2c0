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
from pathlib import Path

_STDERR = 2  # `trainables.launch.run_trial.output_to` sends it to the rank's log
_PARTS = 20
_MAX_POLL_S = 5.0
_STACKS_AT = 0.85
"""Part of the limit after which a rank writes its stacks."""
_FLUSH_S = 1.0
"""Longest time until what a process writes is in its log."""


class Watchdog:
    """Watches one rank during one trial; without a limit it does nothing."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._armed = float("-inf")
        self._timer: threading.Timer | None = None
        self._ended, self._stacks_until = threading.Event(), float("-inf")
        self._lock = threading.RLock()

    def follow(self, log: Path) -> None:
        """From now on, a change of a file, which gets this rank's output, is a heartbeat too."""
        if self._limit_s is not None:
            poll_s = min(self._limit_s / _PARTS, _MAX_POLL_S)
            threading.Thread(target=self._follow, args=(log, poll_s), daemon=True).start()

    def _follow(self, log: Path, poll_s: float) -> None:
        seen = _changed(log)
        while not self._ended.wait(poll_s):
            before, seen = seen, _changed(log)
            if seen != before and time.monotonic() > self._stacks_until:
                with self._lock:
                    if self._armed > float("-inf"):
                        self.heartbeat()

    def heartbeat(self) -> None:
        """Restart the timeout. Cheap enough for every step."""
        if self._limit_s is None:
            return
        now = time.monotonic()
        with self._lock:
            if now - self._armed > self._limit_s / _PARTS:
                faulthandler.dump_traceback_later(self._limit_s, exit=True, file=_STDERR)
                self._schedule_stacks(_STACKS_AT * self._limit_s)
                self._armed = now

    def suspend(self) -> None:
        """Suspend the timeout while waiting for the driver."""
        if self._limit_s is not None:
            with self._lock:
                faulthandler.cancel_dump_traceback_later()
                self._cancel_stacks()
                self._armed = float("-inf")

    def close(self) -> None:
        """End the watch."""
        self._ended.set()
        self.suspend()

    def _schedule_stacks(self, after_s: float) -> None:
        self._cancel_stacks()
        self._timer = threading.Timer(after_s, self._write_stacks, (after_s,))
        self._timer.daemon = True
        self._timer.start()

    def _cancel_stacks(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _write_stacks(self, silent_s: float) -> None:
        """Write the stacks of all threads to the rank's log; they are no sign of life."""
        self._stacks_until = time.monotonic() + _FLUSH_S + _MAX_POLL_S
        os.write(_STDERR, f"no sign of life for {silent_s:.0f} s; all threads:\n".encode())
        faulthandler.dump_traceback(file=_STDERR)


def _changed(log: Path) -> float | None:
    try:
        return log.stat().st_mtime
    except OSError:
        return None
