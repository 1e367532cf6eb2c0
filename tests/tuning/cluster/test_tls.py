"""A cluster with TLS and a process without, or with foreign certificates, and the reverse."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from tuning.certificates import make_certificates
from tuning.cluster.tls import check_tls

HOST = "127.0.0.1"


@contextmanager
def server(folder: Path | None) -> Iterator[str]:
    """A server that wants certificates of an authority, as Ray does; None: one without TLS."""
    context = None
    if folder is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
        context.load_cert_chain(folder / HOST / "tls.crt", folder / HOST / "tls.key")
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context))
        thread.start()
        yield f"{HOST}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    with suppress(OSError):
        while True:
            link, _ = listener.accept()
            with suppress(OSError), link:
                if context is None:
                    link.recv(1)
                    continue
                with context.wrap_socket(link, server_side=True) as safe:
                    safe.sendall(b"x")


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.setenv("RAY_TLS_CA_CERT", str(folder / "ca.crt"))
    monkeypatch.setenv("RAY_TLS_SERVER_CERT", str(folder / HOST / "tls.crt"))
    monkeypatch.setenv("RAY_TLS_SERVER_KEY", str(folder / HOST / "tls.key"))


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "certs", [HOST], 30)
    return tmp_path / "certs"


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (True, True, None),
        (False, False, None),
        (False, True, "the cluster uses TLS"),
        (True, False, "no connection with TLS"),
    ],
)
def test_both_ends_use_tls_or_neither(
    certs: Path, monkeypatch: pytest.MonkeyPatch, ours: bool, theirs: bool, said: str | None
) -> None:
    if ours:
        use(monkeypatch, certs)
    refused = pytest.raises(UserError, match=said) if said else nullcontext()
    with server(certs if theirs else None) as address, refused:
        check_tls(address, f"--address {address}")


def test_certificate_of_another_authority_is_refused(
    certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path / "other", [HOST], 30)
    use(monkeypatch, tmp_path / "other")
    with server(certs) as address, pytest.raises(UserError, match="no connection with TLS"):
        check_tls(address, f"--address {address}")
    monkeypatch.setenv("RAY_TLS_CA_CERT", str(certs / "ca.crt"))  # ours is still foreign to it
    with server(certs) as address, pytest.raises(UserError, match="no connection with TLS"):
        check_tls(address, f"--address {address}")


def test_missing_and_damaged_files_are_named(
    certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    use(monkeypatch, Path("certs"))
    with pytest.raises(UserError, match=r"CA_CERT=certs/ca\.crt: must be an absolute"):
        check_tls(f"{HOST}:1", "--address")
    use(monkeypatch, certs)
    (certs / "ca.crt").write_text("no certificate")
    with pytest.raises(UserError, match=r"ca\.crt.* is no PEM"):
        check_tls(f"{HOST}:1", "--address")
    (certs / "ca.crt").unlink()
    with pytest.raises(UserError, match="needs the file of RAY_TLS_CA_CERT"):
        check_tls(f"{HOST}:1", "--address")
