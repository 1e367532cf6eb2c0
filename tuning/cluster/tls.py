"""Whether a Ray cluster and this process can talk to each other: both with TLS, or both without.

Ray itself tries for minutes, and then says that there is no cluster.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress

from search_spaces.errors import UserError

_WAIT_S = 3.0
_FILES = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")


def check_tls(address: str, named: str) -> None:
    """Check the certificates of both ends.

    Args:
        address: of the cluster's head, `host:port`; another form is not checked.
        named: where it was given, for messages.

    Raises:
        UserError: one end uses TLS and the other does not, or one refuses the other's certificate.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    at = (host.strip("[]"), int(port))
    if os.environ.get("RAY_USE_TLS", "0") in ("", "0"):
        if _answers(at, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), known=False) is None:
            raise UserError(
                f"{named}: the cluster uses TLS; set RAY_USE_TLS=1, {', '.join(_FILES)}"
                " to a certificate of its authority (tune certs)"
            )
        return
    reason = _answers(at, _own(), known=True)
    if reason is not None:
        raise UserError(f"{named}: no connection with TLS ({reason}); see tune certs")


def _own() -> ssl.SSLContext:
    missing = [name for name in _FILES if not os.path.isfile(os.environ.get(name, ""))]
    if missing:
        raise UserError(f"RAY_USE_TLS=1 needs the file of {', '.join(missing)}; see tune certs")
    if relative := [name for name in _FILES if not os.path.isabs(os.environ[name])]:
        raise UserError(
            f"{relative[0]}={os.environ[relative[0]]}: must be an absolute path, here and for "
            "ray start: workers run in other folders"
        )
    authority, certificate, key = (os.environ[name] for name in _FILES)
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as e:
        raise UserError(f"RAY_USE_TLS=1: {authority}, {certificate} or {key} is no PEM") from e
    return context


def _answers(at: tuple[str, int], context: ssl.SSLContext, known: bool) -> str | None:
    """None if the server accepts the handshake and says something, else why not.

    Args:
        known: whether certificates are checked; else only that the server uses TLS.
    """
    context.set_alpn_protocols(["h2"])
    if not known:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection(at, _WAIT_S)
    except OSError:
        return "no process is there"
    try:
        with plain, context.wrap_socket(plain, server_hostname=at[0]) as link:
            if known:
                with suppress(TimeoutError):
                    link.recv(1)  # a server that refuses our certificate says so only now
    except OSError as e:
        return getattr(e, "verify_message", "") or getattr(e, "reason", "") or str(e)
    return None
