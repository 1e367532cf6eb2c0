"""A driver that is ready before its command: `python -m tuning.cli.prepared_driver`.

`tuning.cluster.driver_server` starts it. It imports and starts everything, then waits for a command
line with the files and the terminal of the process that it was typed into.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.errors import UserError
from trainables.runtime.source import files_read, source_digests
from tuning.cli import app
from tuning.cluster.driver_client import receive, send
from tuning.cluster.driver_process import STALE
from tuning.cluster.identity import LoadedCode

if TYPE_CHECKING:
    from tuning.cluster.warm_cluster import WarmCluster

_IMPORTS = (
    "pandas",
    "torch",
    "tuning.controller.ray_tune.driver",
    "tuning.controller.session",
)
"""What a session imports."""
_LOOK_S = 2.0
_STANDARD = (0, 1, 2)
"""stdin, stdout and stderr."""


def main(channel: socket.socket, file: str) -> None:
    """Prepare, wait for a command, and run it; after a mistake of the user wait for the next."""
    began = time.time()
    os.umask(0o077)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for name in _IMPORTS:
        import_module(name)
    from tuning.cluster.warm_cluster import STATE, WarmCluster

    cluster = STATE.cluster = WarmCluster()
    try:
        _start_workers(cluster, file)
        code, before = LoadedCode(began, files_read()), _Before()
        while True:
            command, began = _wait_for_command(channel, code), time.time()
            exit_code = _run(command)
            if exit_code != UserError.exit_code or cluster.is_used or code.grow(began):
                sys.exit(exit_code)
            before.restore()
            send(channel, {"exit": exit_code})
    finally:
        cluster.close()


class _Before:
    """What a command changes in this process, unless it starts a session or imports user code."""

    def __init__(self) -> None:
        self._files = [os.dup(fd) for fd in _STANDARD]
        self._environment, self._path = dict(os.environ), [*sys.path]

    def restore(self) -> None:
        """Make it as it was."""
        sys.stdout.flush()
        sys.stderr.flush()
        for saved, fd in zip(self._files, _STANDARD, strict=True):
            os.dup2(saved, fd)
        os.environ.clear()
        os.environ.update(self._environment)
        sys.path[:] = self._path
        source_digests.cache_clear()  # of files that may be edited, as they are not imported


def _run(command: list[str]) -> int:
    """Run a command; returns its exit code."""
    sys.argv[1:] = command
    try:
        app.main(may_hand_over=False)
    except SystemExit as e:
        if isinstance(e.code, int):
            return e.code
        raise
    return 0


def _start_workers(cluster: WarmCluster, file: str) -> None:
    """Start the workers of a sweep; a mistake in its file or code is the next command's."""
    from search_spaces.loading.sweep_file import load_sweep
    from trainables.registry import resolve_for
    from trainables.user_code.loader import canonical
    from tuning.controller.ray_tune.pools import prepare_workers
    from tuning.controller.tracking.tracking_client import prepare_process

    try:
        spec = load_sweep(Path(file)).spec if file else None
        if spec is None or spec.tracking.name != "none":
            prepare_process()
        if spec is not None:
            name, trainable = spec.trainable, resolve_for(spec)
            for module in trainable.modules:
                import_module(module)
            trainable.source()
            prepare_workers(cluster, spec, canonical(name) if ":" in name else name)
    except UserError as e:
        sys.stderr.write(f"{e}\n")


def _wait_for_command(channel: socket.socket, code: LoadedCode) -> list[str]:
    """Wait for a command, and take over the terminal of its process; ends if the code changes."""
    send(channel, {})  # ready
    while True:
        if not select.select([channel], [], [], _LOOK_S)[0]:
            if changed := code.changed():
                sys.stderr.write(f"{changed} has changed: starting again\n")
                sys.exit(STALE)
            continue
        request, fds = receive(channel)
        if request is None:
            sys.exit("tune up has ended")
        changed = code.changed()
        send(channel, {"refused": changed and f"{changed} has changed"})
        if changed:
            sys.exit(STALE)
        for fd, own in zip(fds, _STANDARD, strict=True):
            os.dup2(fd, own)
            os.close(fd)
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        os.environ.update(request["terminal"])
        return request["command"]  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
