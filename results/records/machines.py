"""The machines of a cluster, as trials' records name them; and what this one has."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict


class Machine(BaseModel):
    """A machine of a cluster.

    Attributes:
        id: that Ray gave it when it joined; another one when it comes back.
        name: its host name.
        address: in its network, by which it is known again when it comes back.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str
    address: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id[:8]})"


def available_cpus(most: int = 8) -> int:
    """That this process may use, `most` at most: more threads would wait for memory or disk."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(most, there or 1)
