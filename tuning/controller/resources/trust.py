"""Joining a Ray cluster is letting it run code here: on another machine only with a token."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from search_spaces.errors import UserError


def check_trust(address: str | None, insecure: bool) -> None:
    """Refuse a cluster on another machine that would be joined without authentication.

    Args:
        address: as given to `--address`; None falls back to `$RAY_ADDRESS`.
        insecure: the user insists.

    Raises:
        UserError: the cluster is not on this machine, and there is no token.
    """
    chosen = address or os.environ.get("RAY_ADDRESS")
    if insecure or chosen in (None, "", "auto", "local"):
        return
    host = urlsplit(chosen if "://" in chosen else f"ray://{chosen}").hostname or ""
    if _here(host) or _has_token():
        return
    raise UserError(
        f"--address {chosen}: a cluster on another machine is joined with a token only, for "
        "without one anybody on the network can run code as you; set RAY_AUTH_TOKEN (or "
        "RAY_AUTH_TOKEN_PATH), as on the cluster, or insist with --insecure"
    )


def _has_token() -> bool:
    """Where Ray itself looks for one."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return False
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or file.is_file()


def _here(host: str) -> bool:
    """Whether a host is this machine: a name of it, or an address that can be bound."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return not address.is_unspecified
