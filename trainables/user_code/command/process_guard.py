"""Runs a program and ends every process that it started: when asked, or when the caller dies.

A program of its own: it imports the standard library only. Programs such as torchrun put their
workers in sessions of their own, so the end of a process group is not enough. As a subreaper, this
process is the parent of every descendant whose parent has ended, and finds them all.

Arguments: the file descriptors of a socket, stdout and stderr, then the program and its arguments.
The socket brings `T` (SIGTERM to the program's group) or `K` (end everything); its end is that of
the caller. It takes one line: `exit CODE` or `error TEXT`. It is closed when no process is left.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_KILL_S = 10.0
"""Longest time that the end of all processes may take; one may hang in the kernel."""


def main(control_fd: int, out: int, err: int, argv: list[str]) -> None:
    """Run the program; returns when all its processes have ended."""
    if os.fork():  # Ray kills the children of a worker that it ends
        os._exit(0)
    wakeup, woken = os.pipe()
    os.set_blocking(woken, False)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signum, lambda *_: None)  # not SIG_IGN, which the program would inherit
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with socket.socket(fileno=control_fd) as control:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except OSError as e:
            control.sendall(f"error {e.strerror}\n".encode())
            return
        os.close(out)
        os.close(err)
        code = _watch(control, wakeup, child.pid)
        _end_all(child.pid)
        if code is not None:
            with suppress(OSError):
                control.sendall(f"exit {code}\n".encode())


def _watch(control: socket.socket, wakeup: int, pid: int) -> int | None:
    """Wait for the end of the program; None if it is to be ended."""
    while True:
        ready, _, _ = select.select([control.fileno(), wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 2**10)
        if (code := _reap().get(pid)) is not None:
            return code
        if control.fileno() in ready:
            try:
                command = control.recv(1)
            except OSError:
                command = b""
            if command != b"T":
                return None
            with suppress(OSError):
                os.killpg(pid, signal.SIGTERM)


def _reap() -> dict[int, int]:
    """Exit codes of children that have ended, as `subprocess` gives them."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = os.waitstatus_to_exitcode(found[1])
    return ended


def _end_all(pid: int) -> None:
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    until = time.monotonic() + _KILL_S
    while (left := _descendants()) and time.monotonic() < until:
        for each in left:
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)
        _reap()
        time.sleep(0.005)


def _descendants() -> list[int]:
    """All processes below this one, from `/proc`; empty where there is none."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(name)}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found, stack = [], [os.getpid()]
    while stack:
        below = children.get(stack.pop(), [])
        found += below
        stack += below
    return found


def _prctl(option: int, value: int) -> None:
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
