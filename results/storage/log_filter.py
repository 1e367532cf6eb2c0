"""Writes a process's output to a log without its secrets: they never reach the disk.

The output goes through a pipe to a process of its own, which outlives the one that writes: the
last words of a process that crashed or was killed are in the pipe, and get to the log. Lines are
written when they end, so a secret that is printed in pieces is found. `main` is that process.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from results.own_program import PROGRAM, start
from search_spaces.redaction import redact_bytes, redact_file, secrets

_START = (
    "import os, sys\n"
    "if os.fork(): os._exit(0)\n"  # Ray kills the children of a worker that it ends
    "sys.path.insert(0, sys.argv[1])\n"
    "from results.storage.log_filter import main\n"
    "main(int(sys.argv[2]))\n"
)
_FLUSH_S = 30.0
"""Seconds that the end of an attempt waits for its output to be written."""
_LENGTH = struct.Struct("I")
_CHUNK, _LONGEST_LINE = 2**16, 2**16
_MAX_CHUNKS = 256
_OVERLAP = 2**12
"""Bytes of a longer line that are kept, as a secret may begin there."""
_NO_CORE = 1
"""Bytes: too few for a file. Unlike 0 it also stops Linux from piping the core to a program (see
`fs/coredump.c`)."""
_processes: dict[int, LogFilter] = {}
"""The filter of this process, by its id: a fork does not share it."""


class LogFilter:
    """The writing process's side."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_FLUSH_S)
        with theirs:
            # isolated and without site-packages: it starts in a few hundredths of a second
            command = [sys.executable, "-ISc", _START, str(PROGRAM), str(theirs.fileno())]
            self._process = start(command, fds=[theirs.fileno()])

    def open(self, log: Path) -> int:
        """The file descriptor through which a log is written.

        Raises:
            OSError: the log cannot be opened, or the process has ended.
        """
        self._process.wait()  # the one that forked
        hidden = b"\0".join(secrets())
        with open(log, "ab") as file:
            read, write = os.pipe()
            try:
                header = _LENGTH.pack(len(hidden))
                socket.send_fds(self._control, [header], [read, file.fileno()])
                self._control.sendall(hidden)
            except OSError:
                os.close(write)
                raise
            finally:
                os.close(read)
        return write

    def flush(self) -> None:
        """Wait until everything that was written is in the log."""
        with suppress(OSError):  # it was killed, or the storage hangs
            self._control.sendall(_LENGTH.pack(0))
            self._control.recv(1)

    def close(self) -> None:
        """Let the process end after the last stream."""
        self._control.close()


def start_log_filter() -> LogFilter:
    """The filter of this process, started if there is none."""
    if os.getpid() not in _processes:
        _processes[os.getpid()] = LogFilter()
    return _processes[os.getpid()]


@contextmanager
def filtered_log(log: Path) -> Iterator[int]:
    """Yield a file descriptor; what is written to it in the block is in the log at its end."""
    known = secrets()
    try:
        fd = start_log_filter().open(log)
    except (BrokenPipeError, ConnectionError):  # it was killed after an earlier attempt
        _processes.pop(os.getpid()).close()
        fd = start_log_filter().open(log)
    try:
        yield fd
    finally:
        os.close(fd)
        start_log_filter().flush()
        if secrets() != known:  # the code read some into its environment
            redact_file(log)


@contextmanager
def no_core_dumps() -> Iterator[None]:
    """Neither this process nor one that it starts in the block leaves its memory on the disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (_NO_CORE if hard else 0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


class _FilteredStream:
    """The output of one attempt."""

    def __init__(self, source: int, log: int, hidden: list[bytes]) -> None:
        os.set_blocking(source, False)
        self.source, self._log, self._hidden = source, log, hidden
        self._rest, self._lost, self._problem = b"", 0, ""

    def pump(self) -> bool:
        """Write what has arrived; False at the end of the stream."""
        try:
            chunk = os.read(self.source, _CHUNK)
        except BlockingIOError:
            return True
        self._rest += chunk
        end = 1 + max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r"))
        if not end and len(self._rest) > _LONGEST_LINE:
            self._rest = redact_bytes(self._rest, self._hidden)
            end = max(0, len(self._rest) - _OVERLAP)
        self._write(end if chunk else len(self._rest))
        return bool(chunk)

    def drain(self) -> None:
        """Write what has arrived, a line without its end too."""
        with suppress(BlockingIOError):
            for _ in range(_MAX_CHUNKS):  # a process that was left behind may write for ever
                self._rest += os.read(self.source, _CHUNK)
        self._write(len(self._rest))

    def close(self) -> None:
        """Close both ends."""
        os.close(self.source)
        os.close(self._log)

    def _write(self, end: int) -> None:
        text = memoryview(redact_bytes(self._rest[:end], self._hidden))
        self._rest = self._rest[end:]
        try:
            if self._lost and text:
                os.write(self._log, f"[{self._lost} bytes lost: {self._problem}]\n".encode())
                self._lost = 0
            while text:
                text = text[os.write(self._log, text) :]
        except OSError as e:  # a full disk does not stop the training
            self._lost, self._problem = self._lost + len(text), str(e.strerror)


def main(control: int) -> None:
    """Serve one process until it has ended and its streams too."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the writer's last words are still to come
    with selectors.DefaultSelector() as selector, socket.socket(fileno=control) as commands:
        selector.register(commands, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                stream: _FilteredStream | None = key.data
                if stream is None and not _handle_command(commands, selector):
                    selector.unregister(commands)
                elif stream is not None and not stream.pump():
                    selector.unregister(stream.source)
                    stream.close()


def _handle_command(commands: socket.socket, selector: selectors.BaseSelector) -> bool:
    """Carry out one command: add a stream, or write all that has arrived. False if none comes."""
    with suppress(ConnectionError):
        header, fds, _, _ = socket.recv_fds(commands, _LENGTH.size, 2)
        if fds:
            hidden = commands.recv(_LENGTH.unpack(header)[0], socket.MSG_WAITALL)
            stream = _FilteredStream(fds[0], fds[1], hidden.split(b"\0") if hidden else [])
            selector.register(stream.source, selectors.EVENT_READ, stream)
            return True
        for key in selector.get_map().values():
            if header and key.data is not None:
                key.data.drain()
        if header:
            commands.sendall(b".")
            return True
    return False
