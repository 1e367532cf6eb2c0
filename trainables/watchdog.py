"""A rank that is silent for too long writes its stacks into its log and ends; its trial is retried.

The clock is faulthandler's, a thread in C: it also fires while the interpreter is stuck in a
library. Every rank has one, and a rank that waits for a stuck one is silent too, so that the stacks
of all of them are in the logs.
"""

from __future__ import annotations

import faulthandler
import time

_STDERR = 2  # where `trainables.run.output_to` has the rank's log
_PARTS = 20


class Watchdog:
    """Of one rank during one trial; None watches nothing."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._armed = float("-inf")

    def beat(self) -> None:
        """A sign of life. Cheap enough for every step."""
        if self._limit_s is None:
            return
        now = time.monotonic()
        if now - self._armed > self._limit_s / _PARTS:
            faulthandler.dump_traceback_later(self._limit_s, exit=True, file=_STDERR)
            self._armed = now

    def pause(self) -> None:
        """Silence is in order now: somebody else is waited for."""
        if self._limit_s is not None:
            faulthandler.cancel_dump_traceback_later()
            self._armed = float("-inf")
