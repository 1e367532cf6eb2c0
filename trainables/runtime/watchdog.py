"""A rank that is silent for too long writes its stacks into its log and ends; its trial is retried.

A rank that waits for a stuck one is silent too. A thread has each write its stacks a little before
the first of them ends, which takes the others with it. The clock of the end is faulthandler's, a
thread in C: it also fires, with the stacks, while the interpreter is stuck in a library.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time

_STDERR = 2  # where `trainables.launch.run_trial.output_to` has the rank's log
_PARTS = 20
_NOTICE = 0.85
"""Of the limit: by then all ranks say where they are."""


class Watchdog:
    """Of one rank during one trial; None watches nothing."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._armed = float("-inf")
        self._notice: threading.Timer | None = None

    def heartbeat(self) -> None:
        """A sign of life. Cheap enough for every step."""
        if self._limit_s is None:
            return
        now = time.monotonic()
        if now - self._armed > self._limit_s / _PARTS:
            faulthandler.dump_traceback_later(self._limit_s, exit=True, file=_STDERR)
            self._give_notice(_NOTICE * self._limit_s)
            self._armed = now

    def pause(self) -> None:
        """Silence is in order now: somebody else is waited for."""
        if self._limit_s is not None:
            faulthandler.cancel_dump_traceback_later()
            self._cancel_notice()
            self._armed = float("-inf")

    def _give_notice(self, after_s: float) -> None:
        self._cancel_notice()
        self._notice = threading.Timer(after_s, _say_where, (after_s,))
        self._notice.daemon = True
        self._notice.start()

    def _cancel_notice(self) -> None:
        if self._notice is not None:
            self._notice.cancel()


def _say_where(silent_s: float) -> None:
    os.write(_STDERR, f"no sign of life for {silent_s:.0f} s; all threads:\n".encode())
    faulthandler.dump_traceback(file=_STDERR)
