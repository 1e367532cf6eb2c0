"""A real S3-compatible server on the loopback interface, for one module of tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pytest

BUCKET = "bucket"
CANARY = "canary-of-the-object-store"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What a process must have to be let in."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server with one bucket; processes find it by the environment. Gives its URL."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL", url)
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        with urlopen(Request(f"{url}/{BUCKET}", method="PUT"), timeout=60):
            pass
        yield url
    server.stop()
