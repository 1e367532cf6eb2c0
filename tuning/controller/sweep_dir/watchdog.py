"""Ends a session that is stuck: a call of the driver does not return, as on storage that hangs."""

from __future__ import annotations

import faulthandler
import math
import threading
import time
from typing import Self

from results.paths import SweepPaths
from results.storage.atomic import open_private
from results.sweep_folder.folder import sweep_argument
from results.sweep_folder.lock import release_lock, this_process
from tuning.controller.events import Interrupt, in_time

LOOP_S = 60.0
"""Longest time between two steps of the driver's loop."""
STOP_S = 10.0
"""The same after a request to stop, until the session reacts to it."""
END_S = 30.0
"""Longest step of the session's end after such a request."""


class SessionWatchdog:
    """Watches from a thread that a session makes progress, while a block runs.

    Its time is the number of its own ticks, so a process that was frozen does not count as stuck.
    """

    def __init__(self, interrupt: Interrupt, paths: SweepPaths) -> None:
        self._interrupt, self._paths = interrupt, paths
        self._limit_s, self._silent_s, self._reacted = math.inf, 0.0, False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def progress(self, limit_s: float = LOOP_S) -> None:
        """The session makes progress; it is stuck if the next call comes later than `limit_s`.

        A request to stop shortens the limit.
        """
        self._limit_s, self._silent_s, self._reacted = limit_s, 0.0, self._interrupt.requested

    def release(self) -> None:
        """Free the sweep for other drivers, because this process ends."""
        release_lock(self._paths.lock, **this_process())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        stopping = False
        while not self._done.wait(1.0):
            self._silent_s += 1.0
            if self._interrupt.pending and not stopping:
                stopping, self._silent_s = True, 0.0
            limit_s = (END_S if self._reacted else STOP_S) if stopping else self._limit_s
            if self._silent_s >= limit_s:
                self._end()
                self._silent_s = 0.0

    def _end(self) -> None:
        where = f"stacks in {self._paths.log}"
        if not in_time(self._write_stacks):  # perhaps its disk is what the session waits for
            where = f"{self._paths.log} cannot be written"
        self._interrupt.give_up(
            f"{self._paths.root}: stuck, no progress for {self._silent_s:.0f} s ({where}); "
            f"continue with: tune resume {sweep_argument(self._paths)}"
        )

    def _write_stacks(self) -> None:
        with open(self._paths.log, "a", opener=open_private) as log:
            log.write(f"{time.ctime()}: no progress for {self._silent_s:.0f} s; all threads:\n")
            log.flush()
            faulthandler.dump_traceback(log)
