"""The process of `tune up`: keeps a prepared driver, and gives it the next command.

A driver runs one session, in all as `tune run` without `tune up` would; the next driver is prepared
when it has ended. A command with a mistake of the user's starts no session, and the driver stays.
Between commands a driver whose code was edited, or whose process was killed, is replaced.
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
            answer = receive(self._channel)
        return (self.process.wait(), False) if answer is None else (answer["exit"], True)

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
        prepare: starts a driver.
        idle_s: seconds without a command after which it ends.
        listener: its socket; its timeout says how often the keeper looks for other reasons to act.
        least_memory: the part of the machine's memory without which, between commands, it ends.
    """

    def __init__(
        self,
        prepare: Callable[[], PreparedDriver],
        idle_s: float,
        listener: socket.socket,
        least_memory: float = 0.1,
    ) -> None:
        self._prepare, self._idle_s, self._listener = prepare, idle_s, listener
        self._least_memory = least_memory
        self._identity = identity()
        self._busy, self._replaces = threading.Lock(), False
        self._ended, self._last_use = threading.Event(), time.monotonic()
        self._driver = prepare()

    def serve(self) -> None:
        """Answer until `tune down`, a signal, lack of memory, or too long without a command."""
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._look()
            else:
                threading.Thread(target=self._answer, args=[connection]).start()

    def _look(self) -> None:
        """Between commands: end for lack of use or memory, and replace a driver that is lost."""
        if not self._busy.acquire(blocking=False):
            return
        memory = psutil.virtual_memory()
        if time.monotonic() - self._last_use > self._idle_s:
            self._ended.set()
        elif memory.available < self._least_memory * memory.total:
            sys.stderr.write("tune up ends: memory is short\n")
            self._ended.set()
        elif self._driver.is_lost:
            self._replaces = True
            self._replace()
            self._replaces = False
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
        if not self._busy.acquire(timeout=_END_S if self._replaces else _POLL_S):
            _send(connection, {"refused": "it runs another command"})
            return
        code, stays = None, False
        try:
            differs = difference(self._identity, request["identity"])
            refused = f"it has {differs}" if differs else self._driver.run(request, fds)
            if refused is None:
                _send(connection, {"pid": self._driver.process.pid})
                code, stays = self._wait(connection)
            else:
                _send(connection, {"refused": refused})
                self._driver.end()  # the command needs its memory
                _wait_for(connection, self._ended.is_set)
        finally:
            if not stays:
                self._replace()
            self._last_use = time.monotonic()
            self._busy.release()
        if code is not None:
            _send(connection, {"exit": code})

    def _wait(self, connection: socket.socket) -> tuple[int, bool]:
        """Wait for the driver; a SIGTERM ends it if the process of the command is killed."""
        if _wait_for(connection, self._driver.has_answered):
            self._driver.process.send_signal(signal.SIGTERM)
        return self._driver.exit_code()

    def _replace(self) -> None:
        self._driver.end()
        if not self._ended.is_set():
            self._driver = self._prepare()


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
        listener.settimeout(_LOOK_S)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        command = [sys.executable, "-m", "tuning.cli.prepared_driver"]
        keeper = Keeper(lambda: PreparedDriver(command, file), idle_s, listener)
        try:
            keeper.serve()
        finally:
            path.unlink(missing_ok=True)
            keeper.end()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
