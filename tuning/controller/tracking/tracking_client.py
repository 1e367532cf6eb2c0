"""Starts the tracking process of a sweep, and sends it the ids of changed trials.

MLflow takes seconds of CPU to import and milliseconds for each report. In the driver it would slow
down the event loop that answers trials, and its memory would stay there.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from results.own_program import module_command
from results.storage.fencing import Fence, Owner
from results.tracking import Ending, Tracker

log = logging.getLogger(__name__)

START_DELAY_S = 10.0
"""Seconds after the first report during which other workers start, which need the cores."""


_PROGRAM = module_command("tuning.controller.tracking.tracking_process")
_prepared: list[subprocess.Popen[str]] = []


def prepare_process() -> int:
    """Start a process that imports MLflow, for the next client in this process; returns its id."""
    _prepared.append(_start_process(_PROGRAM))
    return _prepared[-1].pid


def tracking_command(folder: Path, fence: Fence) -> list[str]:
    """The command of the process that delivers a sweep's folder for its owner."""
    command = [*_PROGRAM, str(folder)]
    return [*command, fence.token, str(fence.number)] if isinstance(fence, Owner) else command


class TrackingClient(Tracker):
    """A `Tracker` in another process, which starts after the first report and again if it dies.

    The process reads the sweep folder itself, and gets only the ids of changed trials. A lost
    message does no harm: at the end the process checks all trials.

    Args:
        name: of the destination, for messages.
        command: of the process; see `tuning.controller.tracking.tracking_process`.
        start_delay_s: seconds from the first report to the start of the process.
    """

    def __init__(
        self, name: str, command: Sequence[str], start_delay_s: float = START_DELAY_S
    ) -> None:
        self.start_delay_s = start_delay_s
        self._name, self._command = name, list(command)
        self._process: subprocess.Popen[str] | None = None
        self._first_report: float | None = None
        self._unsent: dict[str, None] = {}  # ids of trials, in order
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    @property
    def pid(self) -> int | None:
        """Id of the process; None before its start and after `close`."""
        return None if self._process is None else self._process.pid

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """See `Tracker`."""
        self._unsent[trial_id] = None
        if self._process is None and not (reported and self._delay_is_over()):
            return
        with suppress(OSError):  # it died, or its pipe is full: it checks all trials at the end
            for unsent in list(self._unsent):
                self._send(unsent)
                del self._unsent[unsent]

    def _delay_is_over(self) -> bool:
        now = time.monotonic()
        if self._first_report is None:
            self._first_report = now
        return now - self._first_report >= self.start_delay_s

    def closes_soon(self) -> None:
        """See `Tracker`: start the process, if there is anything to deliver."""
        if self._unsent:
            self.start_delay_s = 0.0
            self.changed(next(iter(self._unsent)), reported=True)

    def close(self, ending: Ending, timeout: float) -> str | None:
        """See `Tracker`."""
        try:
            self._send(json.dumps({**asdict(ending), "timeout": timeout}))
            undelivered = self._answers.get(timeout=2 * timeout)  # it may have to start
        except (OSError, queue.Empty):
            undelivered = f"{self._name}: its process does not answer"
        self.abandon()
        return undelivered

    def _send(self, line: str) -> None:
        """Write a whole line, or raise OSError and write nothing."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        try:
            self._write(line)
        except BrokenPipeError:  # it has just ended: `poll` is silent while a thread waits for it
            self._start()
            self._write(line)

    def _write(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def _start(self) -> None:
        self.abandon()
        self._process = _take_prepared(self._command) or _start_process(self._command)
        self._answers = queue.SimpleQueue()
        threading.Thread(
            target=self._receive, args=(self._process, self._answers), daemon=True
        ).start()

    def _receive(
        self, process: subprocess.Popen[str], answers: queue.SimpleQueue[str | None]
    ) -> None:
        """Log the warnings of the process, and queue its answer to `close`."""
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                message = json.loads(line)
                if "warning" in message:
                    log.warning("%s", message["warning"])
                else:
                    answers.put(message["undelivered"])
        answers.put(f"{self._name}: its process ended with exit code {process.wait()}")

    def abandon(self) -> None:
        """See `Tracker`."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._process = None


def _start_process(command: Sequence[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # signals to the group of the driver are for the driver
    )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def _take_prepared(command: Sequence[str]) -> subprocess.Popen[str] | None:
    """The prepared process, once, which gets the arguments of this command."""
    if not _prepared or command[: len(_PROGRAM)] != _PROGRAM:
        return None
    process = _prepared.pop()
    assert process.stdin is not None
    try:
        arguments = json.dumps(command[len(_PROGRAM) :])
        os.write(process.stdin.fileno(), f"{arguments}\n".encode())
    except BrokenPipeError:  # it was killed
        return None
    return process
