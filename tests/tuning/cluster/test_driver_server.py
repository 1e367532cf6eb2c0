"""The process of `tune up` keeps one driver ready, and ends when nobody needs it."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for
from tuning.cluster.driver_client import ask, receive
from tuning.cluster.driver_process import STALE, WarmDriver
from tuning.cluster.driver_server import DriverServer
from tuning.cluster.identity import identity

DRIVER = f"""
import json, os, socket, sys, time
channel = socket.socket(fileno=int(sys.argv[1]))
while True:
    channel.send(b"{{}}")
    data, fds, *_ = socket.recv_fds(channel, 1 << 20, 3)
    if not data:
        break
    word = json.loads(data)["command"][0]
    channel.send(json.dumps({{"refused": None}}).encode())
    os.write(fds[1], str(os.getpid()).encode())
    for fd in fds:
        os.close(fd)
    while word == "long" and not os.path.exists(__file__ + ".end"):
        time.sleep(0.01)
    if word == "mistake":
        channel.send(b'{{"exit": 2}}')
    else:
        sys.exit({{"stale": {STALE}}}.get(word, 0))
"""
"""Answers as `tuning.cli.prepared_driver`, and starts no Ray."""
LONGEST_S = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:  # pytest's is too long
        (Path(name) / "driver.py").write_text(DRIVER)
        yield Path(name)


class Up:
    """A server that serves in a thread."""

    def __init__(self, folder: Path, idle_s: float, least_memory: float, begun_s: float) -> None:
        self.started: list[WarmDriver] = []
        self.refused = threading.Event()
        self._path = str(folder / "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self._path)
        self._listener.listen()
        self._listener.settimeout(0.01)
        command = [sys.executable, str(folder / "driver.py")]

        def prepare() -> WarmDriver:
            if (folder / "no memory").exists():
                self.refused.set()
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self.started.append(WarmDriver(command, ""))
            return self.started[-1]

        self.server = DriverServer(prepare, idle_s, self._listener, least_memory, begun_s)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def run(self, word: str) -> tuple[int | None, str]:
        """The exit code of a command, and what it wrote."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(self._path)
            read, write = os.pipe()
            request = {"command": [word], "identity": identity(), "terminal": {}}
            answer = ask(connection, request, (0, write, write))
            os.close(write)
            with open(read) as output:
                return (receive(connection)[0] or {}).get("exit"), output.read() or str(answer)

    def end(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(self._path)
            ask(connection, {"command": "down"})
        self.thread.join()


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Up]]:
    made: list[Up] = []

    def begin(idle_s: float = 60, least_memory: float = 0, begun_s: float = 60) -> Up:
        made.append(Up(folder, idle_s, least_memory, begun_s))
        return made[-1]

    yield begin
    for up in made:
        if up.thread.is_alive():
            up.end()
        up.server.end()


def test_driver_stays_after_a_mistake_and_is_replaced_after_a_session(
    start: Callable[..., Up],
) -> None:
    up = start()
    pid = str(up.started[0].process.pid)
    assert up.run("mistake") == up.run("mistake") == (2, pid)
    assert up.run("session") == (0, pid)
    assert up.run("session") == (0, str(up.started[1].process.pid))


def test_next_driver_is_prepared_while_a_command_runs(
    folder: Path, start: Callable[..., Up]
) -> None:
    up, done = start(begun_s=0), []
    command = threading.Thread(target=lambda: done.append(up.run("long")))
    command.start()
    wait_for(lambda: len(up.started) == 2)
    assert up.started[1].wait_until_ready()
    assert not done
    (folder / "driver.py.end").touch()
    command.join(LONGEST_S)
    assert done == [(0, str(up.started[0].process.pid))]
    assert up.run("session") == (0, str(up.started[1].process.pid))


def test_command_ends_as_it_would_where_no_other_driver_starts(
    folder: Path, start: Callable[..., Up]
) -> None:
    up, done = start(begun_s=0), []
    (folder / "no memory").touch()
    command = threading.Thread(target=lambda: done.append(up.run("long")))
    command.start()
    assert up.refused.wait(LONGEST_S)
    (folder / "driver.py.end").touch()
    command.join(LONGEST_S)
    assert done == [(0, str(up.started[0].process.pid))]
    up.thread.join(LONGEST_S)
    assert not up.thread.is_alive()


def test_killed_driver_is_replaced_before_the_next_command(start: Callable[..., Up]) -> None:
    up = start()
    assert up.started[0].wait_until_ready()
    os.kill(up.started[0].process.pid, signal.SIGKILL)
    wait_for(lambda: len(up.started) == 2)
    assert up.run("session") == (0, str(up.started[1].process.pid))


@pytest.mark.parametrize(("idle_s", "least_memory"), [(0.01, 0), (60, 1.1)])
def test_ends_without_commands_and_where_memory_is_short(
    start: Callable[..., Up], idle_s: float, least_memory: float
) -> None:
    up = start(idle_s, least_memory)
    up.thread.join(LONGEST_S)
    assert not up.thread.is_alive()
    up.server.end()
    assert up.started[0].process.poll() is not None
