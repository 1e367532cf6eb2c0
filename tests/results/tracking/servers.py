"""Real servers on the loopback interface: MLflow's, one that fails, and one that never answers."""

import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from results.tracking import ui_command, ui_environment


def free_port() -> int:
    """A port on which no process listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class _FailingHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_error(500)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def no_server() -> Iterator[str]:
    """An address where no process listens."""
    yield f"http://127.0.0.1:{free_port()}"


@contextmanager
def failing_server() -> Iterator[str]:
    """Answers 500 to everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _FailingHandler)
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
    """Accepts one connection and never answers; the event is set when it has accepted."""
    asked, over = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.set()
                over.wait()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        over.set()
        thread.join()


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[str]:
    """MLflow's server with its database in a folder; killed at the end of the block."""
    uri = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            ui_command(folder / "artifacts", "127.0.0.1", port),
            env={**os.environ, **ui_environment(f"sqlite:///{folder}/mlflow.db")},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 200
        while not answers(f"{uri}/health"):
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((folder / "server.log").read_text())
            time.sleep(0.05)
        yield uri
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(url: str) -> bool:
    """Whether something answers at an address."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
