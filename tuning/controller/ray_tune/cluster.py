"""Joins a Ray cluster, with authentication, or starts a local one, and lists its resources."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from search_spaces.errors import UserError
from tuning.controller.ray_tune.local_cluster import apply_settings, closed_to_others, connect
from tuning.controller.resources.placement import Node


@contextmanager
def ray_cluster(
    address: str | None, logs: Path | None = None, failed: Callable[[], bool] = lambda: False
) -> Iterator[list[Node]]:
    """Join the Ray cluster at `address`, or start one on this machine while the block runs.

    Args:
        address: None means `$RAY_ADDRESS`.
        logs, failed: where the logs of Ray's processes go, and when; see `session_folder`.

    Yields:
        The machines of the cluster.

    Raises:
        UserError: there is no cluster at the address.
    """
    apply_settings()
    import ray

    if ray.is_initialized():  # by the caller, who also ends it
        yield cluster_nodes()
        return
    chosen = address or os.environ.get("RAY_ADDRESS")
    is_local = chosen in (None, "", "local")
    with closed_to_others(logs, failed) if is_local else nullcontext() as folder:
        try:
            connect(None if is_local else chosen, folder)
        except (ConnectionError, ValueError, RuntimeError) as e:
            reason = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise UserError(f"--address {address}: cannot join that Ray cluster ({reason})") from e
        try:
            yield cluster_nodes()
        finally:
            ray.shutdown()


def cluster_nodes() -> list[Node]:
    """The machines of the cluster with all their resources."""
    import ray

    alive = [n for n in ray.nodes() if n["Alive"]]
    return [_node(n["Resources"], n["NodeID"], n["NodeManagerAddress"]) for n in alive]


def available_nodes() -> list[Node]:
    """The machines of the cluster with the resources that no process holds now."""
    from ray._private.state import available_resources_per_node

    return [_node(has, name) for name, has in available_resources_per_node().items()]


def _node(has: Mapping[str, float], name: str, address: str = "") -> Node:
    return Node(has.get("CPU", 0.0), has.get("GPU", 0.0), name, address)


def own_node_resource() -> str:
    """The name of the resource that only this machine has; Ray gives each machine one of size 1."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    resources: dict[str, float] = next(n["Resources"] for n in ray.nodes() if n["NodeID"] == own)
    return next(r for r in resources if r.startswith("node:") and "__" not in r)


def check_cluster_auth(address: str | None, insecure: bool) -> None:
    """Check that a cluster on another machine is joined with authentication.

    A Ray cluster can run code on every machine that joins it.

    Args:
        address: as given to `--address`; None means `$RAY_ADDRESS`.
        insecure: accept a cluster without a token.

    Raises:
        UserError: the cluster is on another machine, and there is no token.
    """
    chosen = address or os.environ.get("RAY_ADDRESS")
    if insecure or chosen in (None, "", "auto", "local"):
        return
    host = urlsplit(chosen if "://" in chosen else f"ray://{chosen}").hostname or ""
    if _is_this_machine(host) or _has_token():
        return
    raise UserError(
        f"--address {chosen}: a cluster on another machine is joined with a token only, because "
        "without one anyone on the network can run code as you; set RAY_AUTH_TOKEN (or "
        "RAY_AUTH_TOKEN_PATH) as on the cluster, or join it without a token by --insecure"
    )


def _has_token() -> bool:
    """Whether there is a token in one of the places where Ray looks for it."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return False
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or file.is_file()


def _is_this_machine(host: str) -> bool:
    """Whether a host is a name of this machine, or an address that can be bound here."""
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
