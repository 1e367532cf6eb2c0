"""The machines of a cluster, as trial records name them, and the CPUs of this one."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict


class Machine(BaseModel):
    """A machine of a cluster.

    Attributes:
        id: the node id from Ray; a machine that leaves and rejoins gets a new one.
        name: the host name.
        address: the network address, by which a machine that rejoins is recognised.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id[:8]})"


def available_cpus(limit: int = 8) -> int:
    """CPUs that this process may use, up to `limit`: more threads only wait for memory or disk."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(limit, found or 1)
