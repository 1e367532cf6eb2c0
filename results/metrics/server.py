"""Metrics over HTTP, to this machine or further with a token or mutual TLS, and in files."""

from __future__ import annotations

import hmac
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from search_spaces.errors import UserError
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.tracking import MonitoringSpec

_TIMEOUT_S = 10.0

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without a look-up of the host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a reader went away, or failed to prove who it is."""


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a scrape every few seconds is no news."""


class MetricsServer:
    """Owns the port from its creation on, and answers once it has started.

    Raises:
        UserError: the port or address cannot be used, or a file of TLS cannot be read.
    """

    def __init__(self, spec: MonitoringSpec) -> None:
        kind = _IPv6Server if ":" in spec.host else _Server
        token = expand_now("monitoring.token", spec.token) if spec.token else None
        tls = _tls(spec)
        try:
            self._server = kind((spec.host, spec.port or 0), _Handler)
        except OSError as e:
            where = f"{spec.host}:{spec.port}"
            raise UserError(
                f"monitoring.port: cannot listen at {where} ({e.strerror or e}); use another one,"
                " or 0 for any"
            ) from e
        if tls is not None:  # the handshake is the business of the reader's own thread
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._token = token
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Its number, also where a free one was asked for."""
        return self._server.server_port

    def start(self, registry: CollectorRegistry) -> None:
        """Answer requests in a thread."""
        self._server.set_app(_guarded(make_wsgi_app(registry), self._token))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Free the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _guarded(app: Application, token: str | None) -> Application:
    """Only `/metrics`, and only with the token."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        given = str(environ.get("HTTP_AUTHORIZATION", ""))
        if token is not None and not hmac.compare_digest(
            given.encode(), f"Bearer {token}".encode()
        ):
            start("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return [b"needs the token of monitoring.token\n"]
        if environ["PATH_INFO"] != "/metrics":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"see /metrics\n"]
        return app(environ, start)

    return answer


def _tls(spec: MonitoringSpec) -> ssl.SSLContext | None:
    if spec.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(spec.certificate, spec.key)
        if spec.client_ca is not None:
            context.load_verify_locations(spec.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as e:
        names = ", ".join(n for n in (spec.certificate, spec.key, spec.client_ca) if n)
        raise UserError(f"monitoring: cannot use {names} ({e})") from e
    return context


_PUBLIC_FOLDER, _PUBLIC = 0o755, 0o644
"""Prometheus and node_exporter run as users of their own; nothing in these files is secret."""


class Target:
    """The entry of a running driver in a folder that Prometheus watches (`file_sd_configs`).

    A driver that ends takes its entry away; that of a killed one stays, so that Prometheus knows
    the difference.
    """

    def __init__(self, folder: Path, sweep: str, address: str) -> None:
        self._file = folder / f"{sweep}.json"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(_PUBLIC_FOLDER)
        entry = [{"targets": [address], "labels": {"sweep": sweep}}]
        _replace(self._file, json.dumps(entry, indent=1).encode())

    def close(self) -> None:
        """The driver ends."""
        self._file.unlink(missing_ok=True)


class TextFile:
    """Writes metrics to a file every few seconds, for node_exporter's textfile collector.

    Args:
        folder: of the collector; the file is `tune_<sweep>.prom`.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(
        self, folder: Path, sweep: str, registry: CollectorRegistry, every_s: float = 15.0
    ) -> None:
        self._file, self._registry, self._every_s = folder / f"tune_{sweep}.prom", registry, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="textfile", daemon=True)
        try:
            self.write()
        except OSError as e:
            raise UserError(f"monitoring.textfile: cannot write {self._file} ({e})") from e

    def start(self) -> None:
        """Write in a thread."""
        self._thread.start()

    def write(self) -> None:
        """Replace the file."""
        _replace(self._file, generate_latest(self._registry))

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self.write()
            except OSError:  # full for now, perhaps: the file's age says that it is old
                continue

    def close(self) -> None:
        """The driver ends, and its metrics with it."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._file.unlink(missing_ok=True)


def _replace(path: Path, content: bytes) -> None:
    """Write a file that a reader always finds whole and may read."""
    staged = path.with_suffix(".new")
    staged.write_bytes(content)
    staged.chmod(_PUBLIC)
    staged.replace(path)
