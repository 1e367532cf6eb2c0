"""The process of `tune up`: keeps a prepared driver, and gives it the next command.

A driver runs one session, in all as `tune run` without `tune up` would. The next one is prepared
meanwhile; where memory is short, after its end. A command with a mistake of the user's starts no
session, and the driver stays. Between commands a driver whose code was edited, or whose process was
killed, is replaced.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from results.own_program import module_command
from tuning.cluster.driver_client import receive, send
from tuning.cluster.driver_process import WarmDriver
from tuning.cluster.identity import difference, identity, socket_path

_POLL_S = 0.1
_LOOK_S = 2.0
_END_S = 60.0
_BEGUN_S = 10.0
"""A command that runs for longer has begun a session, and is not disturbed at its start."""


class DriverServer:
    """Answers the commands of this user, each in a thread.

    Args:
        prepare: starts a driver.
        idle_s: seconds without a command after which it ends.
        listener: its socket; its timeout says how often it looks for other reasons to act.
        least_memory: the part of the machine's memory without which, between commands, it ends.
        begun_s: seconds after which a command is no mistake, and the next driver is prepared.
    """

    def __init__(
        self,
        prepare: Callable[[], WarmDriver],
        idle_s: float,
        listener: socket.socket,
        least_memory: float = 0.1,
        begun_s: float = _BEGUN_S,
    ) -> None:
        self._prepare, self._idle_s, self._listener = prepare, idle_s, listener
        self._least_memory, self._begun_s = least_memory, begun_s
        self._identity = identity()
        self._busy, self._replaces = threading.Lock(), False
        self._ended, self._last_use = threading.Event(), time.monotonic()
        self._driver = prepare()
        self._next: WarmDriver | None = None

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
        if time.monotonic() - self._last_use > self._idle_s:
            self._ended.set()
        elif self._free_memory() < 0:
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
            self._drop_next()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            request, fds = receive(connection)
            try:
                self._carry_out(connection, request or {}, fds)
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
            send(connection, {"pid": os.getpid(), "ready": ready, "busy": self._busy.locked()})
        elif request.get("command") == "down":
            self._ended.set()
            send(connection, {"pid": os.getpid(), "busy": self._busy.locked()})
        elif "identity" in request:
            self._run(connection, request, fds)

    def _run(self, connection: socket.socket, request: dict[str, Any], fds: Sequence[int]) -> None:
        """Run a command; if its own process runs it, nothing is prepared beside it."""
        if not self._busy.acquire(timeout=_END_S if self._replaces else _POLL_S):
            send(connection, {"refused": "it runs another command"})
            return
        code, stays = None, False
        try:
            differs = difference(self._identity, request["identity"])
            refused = f"it has {differs}" if differs else self._driver.run(request, fds)
            if refused is None:
                send(connection, {"pid": self._driver.process.pid})
                code, stays = self._wait(connection)
            else:
                send(connection, {"refused": refused})
                self._driver.end()  # the command needs its memory
                self._drop_next()
                _wait_for(connection, self._ended.is_set)
        finally:
            if not stays:
                self._replace()
            self._last_use = time.monotonic()
            self._busy.release()
        if code is not None:
            send(connection, {"exit": code})

    def _wait(self, connection: socket.socket) -> tuple[int, bool]:
        """Wait for the driver; a SIGTERM ends it if the process of the command is killed."""
        begun, needed = time.monotonic() + self._begun_s, self._driver.memory

        def done() -> bool:
            nonlocal begun
            if self._next is not None and self._free_memory() < 0:
                begun = math.inf
                self._drop_next()
            waits = self._next is not None or self._ended.is_set() or time.monotonic() < begun
            if not waits and self._free_memory() > needed:
                begun = math.inf  # once, also if the system starts no process
                with suppress(OSError):
                    self._next = self._prepare()
            return self._driver.has_answered()

        if _wait_for(connection, done):
            self._driver.process.send_signal(signal.SIGTERM)
        return self._driver.exit_code()

    def _free_memory(self) -> float:
        """Bytes that may be used before memory is short."""
        memory = psutil.virtual_memory()
        return memory.available - self._least_memory * memory.total

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next.end()
            self._next = None

    def _replace(self) -> None:
        self._driver.end()
        if not self._ended.is_set():
            try:
                self._driver, self._next = self._next or self._prepare(), None
            except OSError as e:
                sys.stderr.write(f"tune up ends: no driver starts ({e.strerror})\n")
                self._ended.set()


def _wait_for(connection: socket.socket, done: Callable[[], bool]) -> bool:
    """Wait until something is done; True if the other side ended before."""
    while not done():
        if select.select([connection], [], [], _POLL_S)[0]:
            return True
    return False


def main(file: str, idle_s: float) -> None:
    """Serve this user, until there is no more use for it."""
    path = socket_path(create=True)
    lock = open(path.with_name("lock"), "w")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("an earlier tune up ends with the command that it runs; try again after that")
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(_LOOK_S)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        command = module_command("tuning.cli.prepared_driver")
        server = DriverServer(lambda: WarmDriver(command, file), idle_s, listener)
        try:
            server.serve()
        finally:
            path.unlink(missing_ok=True)
            server.end()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
