"""Ctrl-C, SIGTERM and SIGHUP end a session cleanly; if it is stuck, or at a second one, at once.

The process then ends by `os._exit`: files on disk are complete at any moment, and no cleanup of a
thread that waits for storage or Ray would end.
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tuning.controller.events import Interrupt, in_time

_SHOW_CURSOR = "\x1b[?25h"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REPEAT_S = 1.0
"""GNU `timeout` signals its child, then the process group: the child gets the signal twice."""


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block at SIGINT, SIGTERM and SIGHUP, also where a shell
    started this process with SIGINT ignored; one more than a second later ends the process.
    """
    until = math.inf

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal until
        if time.monotonic() > until:
            os._exit(130)
        if until == math.inf:
            until = time.monotonic() + _REPEAT_S
            raise KeyboardInterrupt

    caught = [s for s in _SIGNALS if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN]
    before = {signum: signal.signal(signum, handle) for signum in caught}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class StopOnSignal(Interrupt):
    """Stops the session at the first signal; one more than a second later ends the process.

    A SIGHUP that is ignored, as under `nohup`, stays ignored.

    Args:
        explained: called when the process ends at once and has said why.
    """

    def __init__(self, explained: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._explained, self._repeats_until = explained, 0.0
        self._before: dict[signal.Signals, Any] = {}
        self._terminals: list[int] = []
        self._arrived = False

    def __enter__(self) -> Self:
        """Handle signals while a session runs."""
        self._terminals = [fd for fd in (0, 1, 2) if os.isatty(fd)]
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        for signum in _SIGNALS:
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup)
        for end in self._pipe:
            os.close(end)

    @property
    def pending(self) -> bool:
        """Whether a signal came, even if the main thread is in a call that does not return.

        Python calls handlers in the main thread, after such a call. But it writes the signal to the
        pipe at once. While the call cannot be interrupted, the kernel keeps the signal.
        """
        self._arrived = self._arrived or self.requested or self._is_in_pipe() or _is_with_kernel()
        return self._arrived

    def give_up(self, problem: str) -> None:
        """Print the problem and end the process; exit code 130 after a signal, otherwise 1."""
        in_time(lambda: sys.stderr.write(f"\n{problem}\n"))
        in_time(self._explained)
        self._end_process(130 if self.pending else 1)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            if time.monotonic() > self._repeats_until:
                self._end_process(130)
            return
        self._repeats_until = time.monotonic() + _REPEAT_S
        if signum == signal.SIGHUP:
            self._leave_terminals()
        sys.stderr.write("\nstopping; checkpoints are kept. Press again to stop at once.\n")
        self()

    def _end_process(self, code: int) -> None:
        in_time(self._release)
        in_time(lambda: sys.stderr.write(_SHOW_CURSOR * sys.stderr.isatty()))
        os._exit(code)

    def _leave_terminals(self) -> None:
        """Write nothing more to a terminal that is gone: each write to it would fail."""
        null = os.open(os.devnull, os.O_RDWR)
        for terminal in self._terminals:
            os.dup2(null, terminal)

    def _is_in_pipe(self) -> bool:
        try:
            return not {*_SIGNALS}.isdisjoint(os.read(self._pipe[0], 100))
        except OSError:  # empty, or closed
            return False


def _is_with_kernel() -> bool:
    """Whether a signal waits for a thread of this process to take it; False where unknown."""
    try:
        found = re.search(r"ShdPnd:\s*(\w+)", Path("/proc/self/status").read_text())
    except OSError:  # not Linux
        return False
    waiting = int(found[1], 16) if found else 0
    return any(waiting >> (signum - 1) & 1 for signum in _SIGNALS)
