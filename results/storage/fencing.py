"""Fencing: each owner of a sweep folder has a token, and writes of a stale owner are refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from search_spaces.checksum import CHECKSUM_MEMBER, json_is_intact
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular

_FIELDS = {"pid": int, "host": str, "fence": int}


class Fence(Protocol):
    """A driver calls `check` before every durable write."""

    def check(self) -> None:
        """Read the lock file and compare its owner.

        Raises:
            OwnershipLostError: the sweep has another owner now.
        """


class OwnershipLostError(UserError):
    """Another driver took the sweep over: this one must not write any more."""


class NullFence:
    """For a folder that no other process writes to."""

    def check(self) -> None:
        """Does nothing."""


UNFENCED = NullFence()


@dataclass(frozen=True)
class Owner:
    """One driver's ownership of a sweep.

    Attributes:
        token: unique to this owner. The number alone is not: it restarts at 1 when the lock file
            is lost.
        number: the fencing number, one higher than that of the owner before (`fence` in the file).
    """

    lock: Path
    token: str
    number: int

    @property
    def holds_lock(self) -> bool:
        """Whether the lock file still names this owner."""
        held = read_lock(self.lock)
        return held is not None and held.get("token") == self.token

    def check(self) -> None:
        """See `Fence`."""
        if self.holds_lock:
            return
        held = read_lock(self.lock)
        by = f"taken over by process {held['pid']} on {held['host']}" if held else "without owner"
        raise OwnershipLostError(
            f"{self.lock.parent}: {by}, so this driver stops and writes nothing more "
            f"(see: tune show {self.lock.parent})"
        )


def read_lock(lock: Path) -> dict[str, Any] | None:
    """Content of `owner.lock`; None when it is missing or damaged."""
    try:
        data = read_regular(lock)
        held = parse_json(data)
    except (OSError, ValueError):
        return None
    valid = isinstance(held, dict) and all(isinstance(held.get(k), t) for k, t in _FIELDS.items())
    if not valid or not json_is_intact(data):
        return None
    return {name: value for name, value in held.items() if name != CHECKSUM_MEMBER}
