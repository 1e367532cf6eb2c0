"""Joins a Ray cluster, with authentication, or starts a local one, and lists its resources."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from search_spaces.errors import UserError
from search_spaces.redaction import redact
from tuning.cluster.local_cluster import apply_settings, closed_to_others
from tuning.cluster.nodes import AUTOSCALING, Node, with_autoscaling
from tuning.cluster.ray_processes import RayStartError, connect, local_cluster, shutdown
from tuning.cluster.tls import check_tls

_PROBE = (
    "import signal, sys; from ray._raylet import GcsClient; signal.alarm(10); "
    "GcsClient(address=sys.argv[1]).internal_kv_exists(b'none', b'none', timeout=10)"
)
_CONNECT_S, _PROBE_S = 2.0, 30.0  # the process also starts, perhaps on a busy machine


@contextmanager
def ray_cluster(
    address: str | None,
    logs: Path | None = None,
    failed: Callable[[], bool] = lambda: False,
    lost: Callable[[str], None] = lambda reason: None,
) -> Iterator[list[Node]]:
    """Join the Ray cluster at `address`, or start one on this machine while the block runs.

    Args:
        address: None means `$RAY_ADDRESS`.
        logs, failed: where the logs of Ray's processes go, and when; see `session_folder`.
        lost: see `local_cluster`.

    Yields:
        The machines of the cluster.

    Raises:
        RayStartError: no cluster answers at the address, or Ray does not start.
        UserError: the cluster cannot be joined.
    """
    apply_settings()
    if _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray sends it in this mode only
    import ray

    if ray.is_initialized():  # by the caller, who also ends it
        yield cluster_nodes()
        return
    chosen, named = _resolve_address(address)
    if chosen in ("", "local"):
        with closed_to_others(logs, failed) as folder, local_cluster(folder, lost):
            yield cluster_nodes()
        return
    require_answer(address)
    try:
        connect(chosen)
    except (ConnectionError, ValueError, RuntimeError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise UserError(
            f"{named}: cannot join that Ray cluster ({reason}); see that it runs, "
            "and that RAY_AUTH_TOKEN is its token"
        ) from e
    try:
        yield cluster_nodes()
    finally:
        shutdown()


def cluster_nodes() -> list[Node]:
    """The machines of the cluster with all their resources, and those that its autoscaler adds."""
    import ray

    alive = [n for n in ray.nodes() if n["Alive"]]
    nodes = [_node(n["Resources"], n["NodeID"], n["NodeManagerAddress"]) for n in alive]
    return with_autoscaling(nodes, os.environ.get(AUTOSCALING))


def available_nodes() -> list[Node]:
    """The machines of the cluster with the resources that no process holds now."""
    from ray._private.state import available_resources_per_node

    return [_node(has, name) for name, has in available_resources_per_node().items()]


def _node(has: Mapping[str, float], name: str, address: str = "") -> Node:
    return Node(has.get("CPU", 0.0), has.get("GPU", 0.0), name, address)


def check_cluster_auth(address: str | None, insecure: bool) -> None:
    """Check that a cluster on another machine is joined with authentication.

    A Ray cluster can run code on every machine that joins it.

    Args:
        address: as given to `--address`; None means `$RAY_ADDRESS`.
        insecure: accept a cluster without a token.

    Raises:
        UserError: the cluster is on another machine, and there is no token, or it needs none; or
            one of the two ends uses TLS and the other does not, or refuses its certificate.
    """
    chosen, named = _resolve_address(address)
    if chosen in ("", "auto", "local"):
        return
    check_tls(chosen, named)
    if insecure:
        return
    host = urlsplit(f"//{chosen}").hostname or ""
    if _is_this_machine(host):
        return
    if not _has_token():
        raise UserError(
            f"{named}: a cluster on another machine is joined with its token only, "
            "because without one anyone on the network can run code as you; set RAY_AUTH_TOKEN (or "
            "RAY_AUTH_TOKEN_PATH) as on the cluster, or join it without a token by --insecure"
        )
    if accepts_any_token(chosen):
        raise UserError(
            f"{named}: the cluster lets in every token, so anyone on the network can "
            "run code as you; start it with RAY_AUTH_MODE=token, or join it by --insecure"
        )


def _resolve_address(address: str | None) -> tuple[str, str]:
    """The address of the cluster to join, empty for none, and where it was given.

    Raises:
        UserError: it is not one of Ray's own.
    """
    chosen = address or os.environ.get("RAY_ADDRESS", "")
    named = f"--address {chosen}" if address else f"RAY_ADDRESS={chosen}"
    if "://" in chosen:
        raise UserError(
            f"{named}: a driver of trials must be a process of the cluster itself, which a Ray "
            "Client (ray://) is not; run it on a machine of the cluster with --address auto or "
            "HOST:6379, or send it there: tune submit --to ray"
        )
    return chosen, named


def require_answer(address: str | None) -> None:
    """Check that a Ray cluster answers at a `host:port`; Ray itself would wait for ever.

    Raises:
        RayStartError: none does within ten seconds.
    """
    chosen, named = _resolve_address(address)
    if not chosen.rpartition(":")[2].isdecimal():
        return
    try:
        asked = _ask(chosen)
        said = asked.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1] if asked.returncode and said else ""
    except (OSError, ValueError, subprocess.TimeoutExpired) as e:
        reason = getattr(e, "strerror", None) or "it says nothing"
    if reason and "auth" not in reason.lower():  # of a wrong token Ray itself speaks
        raise RayStartError(f"{named}: no Ray cluster answers there ({redact(reason)})")


def _ask(address: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Ask a cluster's control store something, in a process of its own: Ray reads its token once,
    and does not stop to try.

    Raises:
        OSError, ValueError, subprocess.TimeoutExpired: nothing answers there.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    command = [sys.executable, "-P", "-c", _PROBE, address]
    env = {**os.environ, **environment}
    asked = subprocess.run(command, env=env, capture_output=True, timeout=_PROBE_S, check=False)
    if asked.returncode == -signal.SIGALRM:
        raise TimeoutError
    return asked


def _has_token() -> bool:
    """Whether a token is given for this cluster.

    A token in `~/.ray/auth_token` is not: any program may have made it for a cluster of its own.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return False
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or (named is not None and Path(named).is_file())


def accepts_any_token(address: str) -> bool:
    """Whether the cluster at `host:port` answers to a wrong token. False if it does not answer."""
    wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):  # no cluster: Ray will say so
        return _ask(address, **wrong).returncode == 0
    return False


def _is_this_machine(host: str) -> bool:
    """Whether a host is a name of this machine, or an address of one of its interfaces."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    own = (link.address for links in psutil.net_if_addrs().values() for link in links)
    return address.is_loopback or str(address) in {name.partition("%")[0] for name in own}
