"""Ctrl-C and SIGTERM end a session cleanly."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self

from tuning.controller.events import Interrupt

_SHOW_CURSOR = "\x1b[?25h"


class StopOnSignal(Interrupt):
    """Stops the session at the first Ctrl-C or SIGTERM; the second one ends the process."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Handle signals while a session runs."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:  # files on disk are complete at any moment: no cleanup is needed
            sys.stderr.write(_SHOW_CURSOR * sys.stderr.isatty())
            os._exit(128 + signum)
        sys.stderr.write("\nstopping; checkpoints are kept. Press again to stop at once.\n")
        self()
