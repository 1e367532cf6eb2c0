"""The events that wait in the broker for the driver, which takes those of all attempts together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from trainables.launch.broker.events import Event

MOST_EVENTS = 64
"""Events in one reply. The driver answers all of them together, so the first one waits for all."""


class Exchange:
    """Which attempts have events, and the newest reply, which may have to be repeated.

    Args:
        take: removes and returns an attempt's next event; None if there is none for the driver.
    """

    def __init__(self, take: Callable[[str], Event | None]) -> None:
        self._take = take
        self._keys, self._has_keys = deque[str](), asyncio.Event()
        self._call, self._reply = "", list[tuple[str, Event]]()

    def post(self, key: str) -> None:
        """An attempt has one event more."""
        self._keys.append(key)
        self._has_keys.set()

    def begin(self, call: str) -> bool:
        """A call comes, by its name; False if it is the newest one again, whose reply was lost."""
        if call == self._call:
            return False
        self._call, self._reply = call, []
        return True

    async def reply(self, call: str) -> Sequence[tuple[str, Event]]:
        """The reply to a call, once there are events; empty if another call has begun meanwhile."""
        while call == self._call and not self._reply:
            await self._has_keys.wait()
            if call == self._call and not self._reply:
                self._reply = self._next_events()
        return self._reply if call == self._call else ()

    def _next_events(self) -> list[tuple[str, Event]]:
        found = list[tuple[str, Event]]()
        while self._keys and len(found) < MOST_EVENTS:
            key = self._keys.popleft()
            if (event := self._take(key)) is not None:
                found.append((key, event))
        if not self._keys:
            self._has_keys.clear()
        return found
