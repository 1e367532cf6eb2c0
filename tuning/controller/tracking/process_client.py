"""Brings a running sweep to its tracker from a process of its own, which yields to everything else.

MLflow takes seconds of CPU to import and milliseconds for each report. In a thread of the driver
they would be taken from the loop that answers trials, and its memory would stay in the driver.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from results.storage.fencing import Fence, Owner
from results.tracking import Ending

log = logging.getLogger(__name__)

_START_S = 60.0
"""Seconds for the process to come up and to answer, beside those for the delivery."""
_LATER_S = 10.0
"""Seconds after the first report in which the cores are left to the workers that come up."""


def tracking_command(folder: Path, fence: Fence) -> list[str]:
    """The command of the process that delivers a sweep's folder for its owner."""
    command = [sys.executable, "-m", "tuning.controller.tracking.process", str(folder)]
    return [*command, fence.token, str(fence.number)] if isinstance(fence, Owner) else command


class TrackingClient:
    """A `Tracker` in another process, started soon after the first report, and again if it dies.

    It reads the sweep folder itself and is only told which trials there is something new of; a word
    that gets lost is made up for at the end, when it looks at all of them.

    Args:
        name: of where it delivers, for messages.
        command: of the process; see `tuning.controller.tracking.process` for what it is told.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name, self._command = name, list(command)
        self._process: subprocess.Popen[str] | None = None
        self._first: float | None = None
        self._untold: dict[str, None] = {}  # in order; of trials that ended before it began too
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """See `Tracker`. Begins when workers are up: its imports would delay their trials."""
        self._untold[trial_id] = None
        if self._process is None and not (reported and self._is_time()):
            return
        with suppress(OSError):  # it has just died, or does not listen; it looks at all later
            for one in list(self._untold):
                self._tell(one)
                del self._untold[one]

    def _is_time(self) -> bool:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first >= _LATER_S

    def close(self, ending: Ending, timeout: float) -> str | None:
        """See `Tracker`."""
        try:
            self._tell(json.dumps({**asdict(ending), "timeout": timeout}))
            said = self._answers.get(timeout=timeout + _START_S)
        except (OSError, queue.Empty):
            said = f"{self._name}: its process does not answer"
        self._end()
        return said

    def _tell(self, line: str) -> None:
        """A line is written as a whole or, when nobody reads, not at all."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def _start(self) -> None:
        self._end()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._answers = queue.SimpleQueue()
        listen = threading.Thread(
            target=self._listen, args=(self._process, self._answers), daemon=True
        )
        listen.start()

    def _listen(
        self, process: subprocess.Popen[str], answers: queue.SimpleQueue[str | None]
    ) -> None:
        """Pass on what the process says: warnings, and at its end the answer to `close`."""
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                word = json.loads(line)
                if "warning" in word:
                    log.warning("%s", word["warning"])
                else:
                    answers.put(word["undelivered"])
        answers.put(f"{self._name}: its process ended with exit code {process.wait()}")

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._process = None
