"""Forms the process group of a trial over the network by which Ray knows its machines.

By default gloo listens on the address of the host name, which `/etc/hosts` of most systems maps to
loopback: workers on two machines then never find each other. NCCL takes any interface that is up.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address
from typing import Any

from ray.exceptions import RayError
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

_CREATE_STORE = "_create_c10d_store"


class ProcessGroupError(Exception):
    """The workers of a trial cannot connect; the message has the address and interface of each."""


@dataclass
class NodeNetworkConfig(TorchConfig):
    """`TorchConfig` for process groups over the network of the Ray nodes.

    Attributes:
        nccl: (name, value) of variables of the workers' environment.
    """

    nccl: tuple[tuple[str, str], ...] = ()

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        """What starts the process group, in the controller."""
        return NodeNetworkBackend


class NodeNetworkBackend(_TorchBackend):
    """Starts a process group over the interfaces that have the addresses of the Ray nodes."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Choose every worker's interface, then start the process group.

        Raises:
            ProcessGroupError: the workers cannot connect.
        """
        places = worker_group.execute(choose_interface, backend_config.nccl)
        worker_group.execute_single(0, listen_on_node_only)
        try:
            super().on_start(worker_group, backend_config)
        except RayError as e:
            reason = (str(getattr(e, "cause", None) or e).splitlines() or [type(e).__name__])[0]
            ranks = ", ".join(f"rank {rank} on {place}" for rank, place in enumerate(places))
            raise ProcessGroupError(
                f"the workers cannot form a process group: {ranks}: {reason}; let these addresses "
                "reach each other on all ports, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME "
                "on each machine before ray start"
            ) from e


def choose_interface(nccl: tuple[tuple[str, str], ...] = ()) -> str:
    """In a worker: let gloo and NCCL use the interface of its Ray node, unless the user chose.

    Args:
        nccl: variables to set before.

    Returns:
        The address of the node, and gloo's interface.
    """
    import ray

    os.environ.update(nccl)
    address = ray.util.get_node_ip_address()
    if (interface := interface_of(address)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # "=": not as a prefix
    return f"{address} ({os.environ.get('GLOO_SOCKET_IFNAME', 'no interface has it')})"


def listen_on_node_only() -> None:
    """In rank 0's worker: let its store listen on the address of its node, not on every one."""
    rendezvous = import_module("torch.distributed.rendezvous")
    original = rendezvous._create_c10d_store

    def create(
        host: str, port: int, rank: int, world_size: int, timeout: Any, use_libuv: bool = True
    ) -> Any:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = None if rank else socket.create_server((host, port), family=family)
        except OSError:  # behind NAT: the machine itself does not have the address
            listener = None
        if listener is None:
            return original(host, port, rank, world_size, timeout, use_libuv)
        store: Any = rendezvous.TCPStore
        listen: dict[str, Any] = {"master_listen_fd": listener.detach(), "use_libuv": use_libuv}
        return store(host, port, world_size, True, timeout, multi_tenant=True, **listen)

    setattr(rendezvous, _CREATE_STORE, create)


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has an IP address; None if there is none.

    All loopback addresses belong to one interface, which lists only the first of them.
    """
    import psutil

    wanted = ip_address(address)
    for name, found in psutil.net_if_addrs().items():
        for entry in found:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            has = ip_address(entry.address.partition("%")[0])
            if has == wanted or (has.is_loopback and wanted.is_loopback):
                return name
    return None
