"""Gives a command to the prepared driver of `tune up`, and waits for its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from search_spaces.errors import UserError
from tuning.cluster.identity import identity, socket_path, terminal_variables

MAX_BYTES = 1 << 20
"""Of a message."""
_OWN_CLUSTER = ("--address", "--detach", "--help")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_open: list[socket.socket] = []
"""Stays open while this process runs a command itself: nothing is prepared beside it."""


def connect() -> socket.socket | None:
    """A connection to `tune up`; None if it does not run."""
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError:  # not on macOS, which has no `tune up`
        return None
    try:
        connection.connect(str(socket_path()))
    except (OSError, UserError):  # also if another user took the name of our folder
        connection.close()
        return None
    return connection


def send(connection: socket.socket, message: object, fds: Sequence[int] = ()) -> None:
    """Send a message, and open files with it."""
    socket.send_fds(connection, [json.dumps(message).encode()], fds)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """The next message, None at the end, and the files that came with it."""
    data, fds, _, _ = socket.recv_fds(connection, MAX_BYTES, 3)
    return json.loads(data or b"null"), fds


def ask(connection: socket.socket, request: dict[str, Any], fds: Sequence[int] = ()) -> Any:
    """Send a request, and wait for the answer; None if `tune up` has ended."""
    try:
        send(connection, request, fds)
        return receive(connection)[0]
    except OSError:
        return None


def hand_over(command: Sequence[str]) -> int | None:
    """Let the prepared driver run a command of this process; returns its exit code at its end.

    Args:
        command: `run` or `resume`, and its arguments.

    Returns:
        None if this process has to run it: `tune up` does not run, or cannot run this command.
    """
    if any(a.startswith(_OWN_CLUSTER) for a in command):
        return None
    if (connection := connect()) is None:
        return None
    request = {"command": command, "identity": identity()}
    request["terminal"] = terminal_variables(os.environ)
    answer = ask(connection, request, (0, 1, 2)) or {"refused": "it has ended"}
    if "refused" in answer:
        _open.append(connection)
        sys.stderr.write(f"starting without the prepared driver of tune up: {answer['refused']}\n")
        return None
    _forward_signals(answer["pid"])
    code: int | None = (receive(connection)[0] or {}).get("exit")
    if code is None:
        sys.stderr.write("tune up has ended before the command; see tune ls\n")
        return 1
    return code if code >= 0 else 128 - code


def _forward_signals(pid: int) -> None:
    def forward(signum: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    for signum in _SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, forward)
