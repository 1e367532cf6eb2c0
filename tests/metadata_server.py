"""The metadata servers of clouds, as far as their documents describe notices of a machine's end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "token-of-a-minute"


class MetadataServer:
    """Answers for one machine, `vm-1`, of every cloud.

    Attributes:
        url: without a path.
        is_over: whether the machine is taken away.
    """

    def __init__(self, url: str) -> None:
        self.url, self.is_over = url, False

    def answer(self, path: str, headers: Any) -> str | None:
        """The body of an answer; None: there is nothing."""
        if path.startswith("/latest/meta-data/spot/instance-action"):
            if headers["X-aws-ec2-metadata-token"] != TOKEN or not self.is_over:
                return None
            return json.dumps({"action": "terminate", "time": "2026-11-24T12:00:00Z"})
        if path == "/computeMetadata/v1/instance/preempted":
            return None if headers["Metadata-Flavor"] != "Google" else str(self.is_over).upper()
        if headers["Metadata"] != "true":
            return None
        if path.startswith("/metadata/instance/compute/name"):
            return "vm-1"
        return json.dumps({"Events": [self._event("vm-2"), *[self._event("vm-1")] * self.is_over]})

    def _event(self, machine: str) -> dict[str, Any]:
        return {"EventType": "Preempt", "Resources": [machine], "NotBefore": "soon"}


@contextmanager
def metadata_server() -> Iterator[MetadataServer]:
    """A server for the duration of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            self._send(TOKEN if asked and self.path == "/latest/api/token" else None)

        def do_GET(self) -> None:
            self._send(made.answer(self.path, self.headers))

        def _send(self, body: str | None) -> None:
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = MetadataServer(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()
