"""`tune ui --live`: serves the live page until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvicorn

from results.sweep_folder.folder import find_sweep, named_sweeps, resolve_storage
from search_spaces.errors import UserError
from tuning.cli.formatting import echo
from tuning.watch.live.app import make_app
from tuning.watch.live.feed import RecordSource
from tuning.watch.live.mirrored import MirroredSource

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve_live(
    sweeps: Sequence[str], storage: str | None, host: str, port: int, browser: bool
) -> None:
    """Print and open the address of the page, and serve it until Ctrl-C.

    Args:
        sweeps: names, folders, or addresses of mirrors; none for all sweeps of the storage.
        storage, host, port, browser: as on the command line.

    Raises:
        UserError: there is no such sweep, or the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="tune-live-") as folder:
        given: dict[str, RecordSource] = {
            name: MirroredSource(name, Path(folder))
            if "://" in name
            else RecordSource(find_sweep(name, storage))
            for name in sweeps
        }

        def find() -> Mapping[str, RecordSource]:
            found = named_sweeps(resolve_storage(storage))
            return given or {name: RecordSource(paths) for name, paths in found}

        token, local = secrets.token_urlsafe(24), host in _LOOPBACK
        server = make_app(find, token, local=local)
        with _listening(host, port) as listener:
            address = f"http://{host}:{listener.getsockname()[1]}/?token={token}"
            echo(address)
            if not local:
                echo(
                    "not encrypted: anyone who sees the traffic can change the sweeps; "
                    "ssh -L reaches a server that listens on 127.0.0.1"
                )
            echo("anyone who has this address can change the sweeps; Ctrl-C ends the server")
            if browser:
                webbrowser.open(address)
            config = uvicorn.Config(
                server, log_level="warning", access_log=False, timeout_graceful_shutdown=1
            )
            uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as e:
        raise UserError(f"--port {port}: cannot listen on {host} ({e.strerror})") from e
