"""A running program: its output, its end, and the end of everything that it started."""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from search_spaces.errors import UserError
from trainables.user_code.frames import missing_file_hint

_GUARD = str(Path(__file__).with_name("process_guard.py"))
_CHUNK, _LONGEST_LINE, _KEPT = 2**16, 2**14, 40
_END = re.compile(rb"([\r\n])")
_COLORS = re.compile(rb"\x1b\[[\d;]*m")
_FRAME = re.compile(r"^[\s\u2500-\u257f]+|[\s\u2500-\u257f]+$")
_RAISED = re.compile(
    r"^(?:\[rank\d+\]: *)?"
    r"((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt): .+|(?:[\w./-]+: )?error: .+)"
)
_CLOSE_S = 15.0


class CommandError(Exception):
    """A program ended with an error: its exit code, or the signal, and what it said last."""


class Program:
    """A program with all processes that it starts; they end with this process at the latest.

    Attributes:
        exit_code: of the program, negative for a signal; None while a process of it is running.

    Raises:
        UserError: the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self.exit_code: int | None = None
        self._argv, self._cwd = list(argv), cwd
        self._control, theirs = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        ends = []
        for fd in (1, 2):
            read, write = os.pipe()
            ends.append(write)
            self._selector.register(read, selectors.EVENT_READ, fd)
        self._selector.register(self._control, selectors.EVENT_READ, 0)
        self._rest, self._before = {1: b"", 2: b""}, {1: b"", 2: b""}
        self._last: dict[int, deque[str]] = {fd: deque(maxlen=_KEPT) for fd in (1, 2)}
        fds = [theirs.fileno(), *ends]
        with theirs:
            guard = subprocess.Popen(
                [sys.executable, "-IS", _GUARD, *map(str, fds), *argv],
                pass_fds=fds,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            guard.wait()  # the one that forked
            for fd in ends:
                os.close(fd)

    def lines(self, timeout: float) -> Iterator[tuple[int, str]]:
        """Wait for output; pass it on to this process's own, and yield its lines.

        Yields:
            1 or 2 (stdout or stderr), and a line without colors; an empty line too, as a sign of
            life, and in place of one that a progress bar draws again and again on stderr.
        """
        if self.exit_code is not None:
            return
        ready = [key for key, _ in self._selector.select(timeout)]
        for key in sorted(ready, key=lambda key: not key.data):  # the end last: it closes the pipes
            if key.data:
                yield from self._read(key.fd, key.data)
            else:
                yield from self._ended()

    def terminate(self) -> None:
        """Send SIGTERM to the program's process group."""
        with suppress(OSError):
            self._control.send(b"T")

    def wait(self, seconds: float) -> bool:
        """Pass output on until the program has ended; False if it has not in that time."""
        until = time.monotonic() + seconds
        while self.exit_code is None and (left := until - time.monotonic()) > 0:
            deque(self.lines(left), maxlen=0)
        return self.exit_code is not None

    def close(self) -> None:
        """Kill what still runs of the program, and wait until nothing is left."""
        if self.exit_code is None:
            with suppress(OSError):
                self._control.send(b"K")
            self.wait(_CLOSE_S)
            self.exit_code = self.exit_code or -signal.SIGKILL
        if self._control.fileno() < 0:
            return  # closed before
        for fd in [key.fd for key in self._selector.get_map().values() if key.data]:
            self._selector.unregister(fd)
            os.close(fd)
        self._selector.close()
        self._control.close()

    def failure(self) -> str | None:
        """Why it failed, in one line with the end of its error output; None if it did not."""
        if self.exit_code in (0, None):
            return None
        code = self.exit_code or 0
        how = f"exited with code {code}"
        if code < 0:
            how = f"was killed by {_signal_name(-code)}"
        said = list(filter(None, (_FRAME.sub("", text) for text in self._last[2] or self._last[1])))
        raised = [m[1] for line in said if (m := _RAISED.match(line))]
        words = raised[-1] if raised else " | ".join(said[-3:])
        hint = missing_file_hint(words, self._cwd)
        return f"the program {how}{': ' if words else ''}{words}{hint}"

    def _read(self, source: int, fd: int) -> Iterator[tuple[int, str]]:
        chunk = os.read(source, _CHUNK)
        if not chunk:
            self._selector.unregister(source)
            os.close(source)
        with suppress(OSError):  # a full disk does not stop the training
            os.write(fd, chunk)
        *complete, rest = _END.split(self._rest[fd] + chunk)
        if not chunk or len(rest) > _LONGEST_LINE:
            complete, rest = [*complete, rest, b""], b""
        self._rest[fd] = rest
        yield fd, ""
        for text, end in zip(complete[::2], complete[1::2], strict=True):
            line = _COLORS.sub(b"", text[:_LONGEST_LINE]).decode(errors="replace").rstrip()
            if line:
                self._last[fd].append(line)
                yield fd, "" if fd == 2 and self._before[fd] == b"\r" else line
            self._before[fd] = end

    def _ended(self) -> Iterator[tuple[int, str]]:
        """What the guard says: the end of the program, after that of all its processes."""
        try:
            words = self._control.recv(_CHUNK).decode().split(maxsplit=1)
        except OSError:
            words = []
        self._selector.unregister(self._control)
        while any(key.data for key in self._selector.get_map().values()):
            if not (ready := self._selector.select(1)):
                break  # a process that the guard could not end
            for key, _ in ready:
                yield from self._read(key.fd, key.data)
        self.exit_code = -signal.SIGKILL
        if words[:1] == ["exit"]:
            self.exit_code = int(words[1])
        elif words:
            raise UserError(f"command: cannot start {self._argv[0]}: {words[1].strip()}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
