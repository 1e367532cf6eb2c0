"""The machines of a cluster, as trials' records name them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Machine(BaseModel):
    """A machine, for as long as it stays in its cluster.

    Attributes:
        id: that Ray gave it when it joined.
        name: its host name.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.id[:8]})"
