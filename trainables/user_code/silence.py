"""Ends a process of user code that neither reports nor prints for too long; the trial is retried.

The stacks of all threads are in its log before. The limit itself is enforced by faulthandler, a
thread in C, which also fires while the interpreter is stuck in a library.
"""

from __future__ import annotations

import faulthandler
import threading
import time
from pathlib import Path

from trainables.runtime.watchdog import write_stacks

_STDERR = 2  # `trainables.launch.run_trial.output_to` sends it to the rank's log
_PARTS = 20
_MAX_POLL_S = 5.0
_STACKS_AT = 0.85
"""Part of the limit after which the stacks are written: the first rank that ends takes the others,
which may only wait for it, with it."""
_FLUSH_S = 1.0
"""Longest time until what a process writes is in its log."""


class SilenceWatch:
    """Watches this process in a `with` block; without a limit it does nothing.

    Args:
        log: file that gets the process's output.
        limit_s: longest time without a report and without output.
    """

    def __init__(self, log: Path, limit_s: float | None) -> None:
        self._log, self._limit_s = log, limit_s
        self._active = time.monotonic()
        self._output: float | None = None
        self._warned = False
        self._ended = threading.Event()

    def heartbeat(self) -> None:
        """A report began or ended."""
        self._active, self._warned = time.monotonic(), False

    def __enter__(self) -> SilenceWatch:
        if self._limit_s is not None:
            self.heartbeat()
            threading.Thread(target=self._watch, args=(self._limit_s,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._limit_s is not None:
            faulthandler.cancel_dump_traceback_later()

    def _watch(self, limit_s: float) -> None:
        poll_s = min(limit_s / _PARTS, _MAX_POLL_S)
        while not self._ended.wait(poll_s):
            if (output := self._last_output()) != self._output:
                self._output = output
                self.heartbeat()
            silent_s = time.monotonic() - self._active
            if silent_s > _STACKS_AT * limit_s and not self._warned:
                write_stacks(silent_s)
                self._warned = True
                self._ended.wait(_FLUSH_S)
                self._output = self._last_output()  # the stacks do not count
            left_s = limit_s - (time.monotonic() - self._active)
            if not self._ended.is_set():
                faulthandler.dump_traceback_later(max(0.1, left_s), exit=True, file=_STDERR)

    def _last_output(self) -> float | None:
        try:
            return self._log.stat().st_mtime
        except OSError:
            return None
