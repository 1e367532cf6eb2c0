"""The process of `tune up`: keeps a prepared driver, and gives it the next command.

A driver runs one command, in all as `tune run` without `tune up` would; the next driver is
prepared when the command has ended. Between commands a driver whose code was edited is replaced.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from tuning.controller.ray_tune.session_folder import remove_stale
from tuning.prepared.client import MAX_BYTES, receive
from tuning.prepared.identity import difference, identity, socket_path

_POLL_S = 0.1
_LOOK_S = 2.0
_END_S = 60.0
STALE = 75
"""The exit code of a driver whose code has changed."""


class PreparedDriver:
    """A process that is ready to run a command, or becomes it.

    Args:
        file: the sweep whose workers it starts; empty for none.
    """

    def __init__(self, file: str) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tuning.cli.prepared_driver", str(theirs.fileno()), file]
        with theirs:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, process_group=0
            )

    @property
    def is_stale(self) -> bool:
        """Whether it has ended because code was edited."""
        return self.process.poll() == STALE

    def wait_until_ready(self) -> bool:
        """Wait until it is ready; False if it has ended. Other callers may do so too."""
        try:
            return bool(self._channel.recv(MAX_BYTES, socket.MSG_PEEK))
        except OSError:
            return False

    def run(self, request: dict[str, Any], fds: Sequence[int]) -> str | None:
        """Let it run a command with these files as stdin, stdout and stderr; or why it does not."""
        if not self.wait_until_ready():
            return "it does not start; the command shows why, or the log of tune up"
        try:
            receive(self._channel)  # that it is ready
            socket.send_fds(self._channel, [json.dumps(request).encode()], fds)
            refused: str | None = receive(self._channel)["refused"]
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


class Keeper:
    """Answers the commands of this user, each in a thread.

    Args:
        file: see `PreparedDriver`.
        idle_s: seconds without a command after which it ends.
        listener: its socket.
    """

    def __init__(self, file: str, idle_s: float, listener: socket.socket) -> None:
        self._file, self._idle_s, self._listener = file, idle_s, listener
        self._identity = identity()
        self._busy = threading.Lock()
        self._ended, self._last_use = threading.Event(), time.monotonic()
        self._driver = PreparedDriver(file)
        listener.settimeout(_LOOK_S)

    def serve(self) -> None:
        """Answer until `tune down`, a signal, or too long a time without a command."""
        while not self._ended.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=[connection]).start()
            if self._busy.acquire(blocking=False):
                if time.monotonic() - self._last_use > self._idle_s:
                    self._ended.set()
                elif self._driver.is_stale:
                    self._replace()
                self._busy.release()

    def end(self) -> None:
        """Take no more commands, wait for the one that runs, and end the driver."""
        self._ended.set()
        self._listener.close()
        with self._busy:
            self._driver.end()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            data, fds, _, _ = socket.recv_fds(connection, MAX_BYTES, 3)
            request = json.loads(data or b"{}")
            try:
                self._carry_out(connection, request, fds)
            except OSError:  # the client has gone
                return
            finally:
                for fd in fds:
                    os.close(fd)

    def _carry_out(
        self, connection: socket.socket, request: dict[str, Any], fds: Sequence[int]
    ) -> None:
        if request.get("command") == "status":
            ready = self._busy.locked() or self._driver.wait_until_ready()
            _send(connection, {"pid": os.getpid(), "ready": ready, "busy": self._busy.locked()})
        elif request.get("command") == "down":
            self._ended.set()
            _send(connection, {"pid": os.getpid(), "busy": self._busy.locked()})
        elif "identity" in request:
            self._run(connection, request, fds)

    def _run(self, connection: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
        """Run a command; while its own process runs it, nothing is prepared beside it."""
        if not self._busy.acquire(blocking=False):
            _send(connection, {"refused": "it runs another command"})
            return
        code = None
        try:
            differs = difference(self._identity, request["identity"])
            refused = f"it has {differs}" if differs else self._driver.run(request, fds)
            if refused is None:
                _send(connection, {"pid": self._driver.process.pid})
                code = self._wait(connection)
            else:
                _send(connection, {"refused": refused})
                self._driver.end()  # the command needs its memory
                _wait_for(connection, self._ended.is_set)
        finally:
            self._replace()
            self._last_use = time.monotonic()
            self._busy.release()
        if code is not None:
            _send(connection, {"exit": code})

    def _wait(self, connection: socket.socket) -> int:
        """Wait for the driver's exit code; a SIGTERM ends it if the command's process is killed."""
        process = self._driver.process
        if _wait_for(connection, lambda: process.poll() is not None):
            process.send_signal(signal.SIGTERM)
        return process.wait()

    def _replace(self) -> None:
        self._driver.end()
        if not self._ended.is_set():
            self._driver = PreparedDriver(self._file)


def _wait_for(connection: socket.socket, done: Callable[[], bool]) -> bool:
    """Wait until something is done; True if the other side ended before."""
    while not done():
        if select.select([connection], [], [], _POLL_S)[0]:
            return True
    return False


def _send(connection: socket.socket, message: Any) -> None:
    connection.send(json.dumps(message).encode())


def main(file: str, idle_s: float) -> None:
    """Serve this user, until there is no more use for it."""
    path = socket_path(create=True)
    lock = open(path.with_name("lock"), "w")  # noqa: SIM115 - held until the process ends
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        keeper = Keeper(file, idle_s, listener)
        try:
            keeper.serve()
        finally:
            path.unlink(missing_ok=True)
            keeper.end()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
