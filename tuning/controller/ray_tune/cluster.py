"""Starts a local Ray cluster or joins one, with authentication, and lists its resources."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from search_spaces.errors import UserError
from tuning.controller.resources.placement import Node

_RAY_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the sweep folder has our own records
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the CLI has its own
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a missing metric fails its trial, not the sweep
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # Tune's own state is a cache that resume never reads
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a lane's thread that outlives the cluster must not start one
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextmanager
def ray_cluster(address: str | None) -> Iterator[list[Node]]:
    """Join the Ray cluster at `address`, or start one on this machine while the block runs.

    Yields:
        The machines of the cluster.

    Raises:
        UserError: there is no cluster at the address.
    """
    for name, value in _RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():  # by the caller, who also ends it
        yield cluster_nodes()
        return
    chosen = address or os.environ.get("RAY_ADDRESS")
    try:
        with _unchanged_sigterm_handler(), _minimal_head_node():
            ray.init(
                address=chosen or "local",
                include_dashboard=None if chosen else False,
                log_to_driver=False,
                dashboard_host="127.0.0.1",
                logging_level=logging.ERROR,
            )
    except (ConnectionError, ValueError, RuntimeError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise UserError(f"--address {address}: cannot join that Ray cluster ({reason})") from e
    try:
        yield cluster_nodes()
    finally:
        ray.shutdown()


@contextmanager
def _unchanged_sigterm_handler() -> Iterator[None]:
    """Restore the SIGTERM handler: with Ray's own the driver would exit at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and signal.getsignal(signal.SIGTERM) is not before:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _minimal_head_node() -> Iterator[None]:
    """Start a cluster within the block without API server, log monitor and autoscaler.

    A sweep uses none of them, and each takes about a second of imports before the first trial. Ray
    has no setting that leaves them out.
    """
    from ray._private.node import Node as Head

    left_out = ("start_api_server", "start_log_monitor", "start_monitor")
    before = {name: getattr(Head, name) for name in left_out}
    for name in left_out:
        setattr(Head, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, start in before.items():
            setattr(Head, name, start)


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
