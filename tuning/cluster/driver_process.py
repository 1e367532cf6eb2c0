"""A process that `tune up` has prepared for a command."""

from __future__ import annotations

import select
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

from tuning.cluster.driver_client import MAX_BYTES, receive, send
from tuning.cluster.session_folder import remove_stale

_END_S = 60.0
STALE = 75
"""The exit code of a driver whose code has changed."""


class WarmDriver:
    """A process that is ready to run a command, or becomes it.

    Args:
        command: starts it; gets the number of its end of the channel, and a file.
        file: the sweep whose workers it starts; empty for none.
    """

    def __init__(self, command: Sequence[str], file: str) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno()), file],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )

    @property
    def is_lost(self) -> bool:
        """Whether it has ended because code was edited, or was killed after it was ready."""
        code = self.process.poll()
        return code is not None and (code == STALE or self.wait_until_ready())

    def wait_until_ready(self) -> bool:
        """Wait until it is ready; False if it has ended. Other callers may do so too."""
        try:
            return bool(self._channel.recv(MAX_BYTES, socket.MSG_PEEK))
        except OSError:
            return False

    def has_answered(self) -> bool:
        """Whether the command has ended."""
        return self.process.poll() is not None or bool(select.select([self._channel], [], [], 0)[0])

    def exit_code(self) -> tuple[int, bool]:
        """The exit code of the command that has ended, and whether this driver takes another."""
        answer = None
        with suppress(OSError):
            answer, _ = receive(self._channel)
        return (self.process.wait(), False) if answer is None else (answer["exit"], True)

    @property
    def memory(self) -> int:
        """Bytes of it and its processes; what several of them share counts for each."""
        size = 0
        with suppress(psutil.Error):
            own = psutil.Process(self.process.pid)
            for process in [own, *own.children(recursive=True)]:
                with suppress(psutil.Error):
                    size += process.memory_info().rss
        return size

    def run(self, request: dict[str, Any], fds: Sequence[int]) -> str | None:
        """Let it run a command with these files as stdin, stdout and stderr; or why it does not."""
        if not self.wait_until_ready():
            return "it does not start; the command shows why, or the log of tune up"
        try:
            receive(self._channel)  # that it is ready
            send(self._channel, request, fds)
            refused: str | None = receive(self._channel)[0]["refused"]
        except (OSError, TypeError):
            return "it has just ended"
        return refused

    def end(self) -> None:
        """End it and all its processes."""
        below = []
        if self.process.poll() is None:
            below = psutil.Process(self.process.pid).children(recursive=True)
        with suppress(subprocess.TimeoutExpired):
            self.process.terminate()
            self.process.wait(_END_S)
        self.process.kill()
        self.process.wait()
        for process in below:
            with suppress(psutil.Error):
                process.kill()
        self._channel.close()
        remove_stale()
