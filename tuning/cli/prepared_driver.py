"""A driver that is ready before its command: `python -m tuning.cli.prepared_driver`.

`tuning.prepared.keeper` starts it. It imports and starts everything, then waits for a command line
with the files and the terminal of the process that it was typed into.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from tuning.cli import app
from tuning.prepared.client import MAX_BYTES
from tuning.prepared.identity import LoadedCode
from tuning.prepared.keeper import STALE

if TYPE_CHECKING:
    from tuning.controller.ray_tune.prepared import PreparedCluster

_LOOK_S = 2.0


def main(channel: socket.socket, file: str) -> None:
    """Prepare, wait for the command, and run it."""
    began = time.time()
    os.umask(0o077)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    from tuning.controller.ray_tune.prepared import prepare

    cluster = prepare()
    try:
        _start_workers(cluster, file)
        request = _wait_for_command(channel, LoadedCode(began))
        os.environ.update(request["terminal"])
        sys.argv[1:] = request["command"]
        app.main(may_hand_over=False)
    finally:
        cluster.close()


def _start_workers(cluster: PreparedCluster, file: str) -> None:
    """Start the workers of a sweep; a mistake in its file or code is the next command's."""
    from trainables.registry import resolve_for
    from trainables.user_code.loader import canonical
    from tuning.api import load

    try:
        if file:
            spec = load(file).spec
            name, trainable = spec.trainable, resolve_for(spec)
            for module in trainable.implementation:
                import_module(module)
            trainable.source()
            cluster.start_workers(spec, canonical(name) if ":" in name else name)
    except UserError as e:
        sys.stderr.write(f"{e}\n")


def _wait_for_command(channel: socket.socket, code: LoadedCode) -> dict[str, Any]:
    """Wait for a command, and take over the files of its process; ends if the code changes."""
    channel.send(b"{}")  # ready
    while True:
        if not select.select([channel], [], [], _LOOK_S)[0]:
            if code.changed():
                sys.exit(STALE)
            continue
        data, fds, _, _ = socket.recv_fds(channel, MAX_BYTES, 3)
        if not data:
            sys.exit("tune up has ended")
        changed = code.changed()
        channel.send(json.dumps({"refused": changed and f"{changed} has changed"}).encode())
        if changed:
            sys.exit(STALE)
        for fd, own in zip(fds, (0, 1, 2), strict=True):
            os.dup2(fd, own)
            os.close(fd)
        sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
        return json.loads(data)  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
