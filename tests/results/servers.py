"""Real servers on the loopback interface that are of no use: they fail, or never answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class _Fails(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(500)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def failing_server() -> Iterator[str]:
    """Answers 500 to everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Fails)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def hanging_server() -> Iterator[tuple[str, threading.Event]]:
    """Takes one connection and says nothing until the block ends; the event tells it was asked."""
    asked, over = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.set()
                over.wait()

        thread = threading.Thread(target=take)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        over.set()
        thread.join()
