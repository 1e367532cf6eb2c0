"""The machines of a cluster, as trials' records name them."""

from __future__ import annotations

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
