"""Counts the reports of the ranks of an attempt.

A report waits for all ranks. If one has returned after fewer reports, the others wait for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Timer
from typing import Any, Self

from search_spaces.errors import UserError

_ANSWER_S = 10.0
"""Longest wait in one call: the process that asked may be gone."""
_SLOW_S = 2.0
"""A report that takes longer may wait for another rank."""
_RECONNECT_S = 1.0
_MOST_ATTEMPTS = 10_000
"""That are remembered: more than run at once."""


@dataclass
class _Attempt:
    begun: dict[int, int] = field(default_factory=dict)
    returned: dict[int, int] = field(default_factory=dict)


class RankReports:
    """The broker's side."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Attempt] = {}
        self._ranks_changed = asyncio.Condition()

    async def count_report(self, key: str, rank: int, number: int) -> None:
        """A worker: it begins its report of that number (from 1)."""
        self._ranks_of(key).begun[rank] = number
        await self._notify_ranks()

    async def wait_for_ranks(
        self, key: str, rank: int, world_size: int, number: int
    ) -> list[int] | None:
        """A worker: its code has returned after so many reports; wait for the other ranks.

        Returns:
            The ranks that report once more; None if neither is known yet.
        """
        attempt = self._ranks_of(key)
        attempt.returned[rank] = number
        await self._notify_ranks()

        def waiting() -> list[int]:
            return sorted(r for r, begun in attempt.begun.items() if begun > number)

        def ended() -> bool:
            return len(attempt.returned) == world_size

        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S), self._ranks_changed:
                await self._ranks_changed.wait_for(lambda: ended() or waiting())
        return waiting() if ended() or waiting() else None

    def _ranks_of(self, key: str) -> _Attempt:
        if len(self._ranks) > _MOST_ATTEMPTS:
            self._ranks.pop(next(iter(self._ranks)))
        return self._ranks.setdefault(key, _Attempt())

    async def _notify_ranks(self) -> None:
        async with self._ranks_changed:
            self._ranks_changed.notify_all()


class ReportCounter:
    """A worker's side, in a `with` block of one attempt. With one worker it does nothing.

    The broker is told only of a report after which no other one begins for some seconds, as it is
    of ranks that wait: one call for each report of each rank would be most of what it answers.
    """

    def __init__(self, broker: Any, key: str, rank: int, world_size: int) -> None:
        self._broker, self._key, self._rank, self._world_size = broker, key, rank, world_size
        self._number = 0
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel()

    def count(self) -> None:
        """A report begins on this rank."""
        self._number += 1
        if self._world_size > 1:
            self._cancel()
            sent = [self._key, self._rank, self._number]
            self._timer = Timer(_SLOW_S, self._broker.count_report.remote, sent)
            self._timer.daemon = True
            self._timer.start()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def wait_for_ranks(self) -> None:
        """The trial's code has returned on this rank: wait until it has on all of them.

        Raises:
            UserError: another rank waits in a report that this one does not make.
        """
        waiting: list[int] | None = None if self._world_size > 1 else []
        asked = self._key, self._rank, self._world_size, self._number
        while waiting is None:
            waiting = ask(self._broker.wait_for_ranks.remote, *asked)
        if waiting:
            raise UserError(
                f"rank {self._rank} returned after {self._number} reports, and rank {waiting[0]} "
                "waits for it in one more; let all ranks report equally often"
            )


def ask(method: Callable[..., Any], *args: Any) -> Any:
    """Call the broker and wait for its answer; again when the connection to it was cut.

    Ray ends the processes of a machine whose connection does not come back.
    """
    import ray

    while True:
        try:
            return ray.get(method(*args))
        except ray.exceptions.ActorUnavailableError:
            time.sleep(_RECONNECT_S)
