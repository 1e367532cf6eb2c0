"""What the broker knows of a lane, of an attempt, and of the driver's newest call."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from results.records.machines import Machine
from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch.broker.events import Event, Failed, Leak, RankOutcome, first_leak

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

MOST_EVENTS = 64
"""Events in one reply. The driver answers all of them together, so the first one waits for all."""


@dataclass
class LaneState:
    """State of one lane.

    Attributes:
        num_taken: jobs that its workers have taken.
        num_forgotten: jobs of earlier sweeps.
    """

    jobs: list[TrialJob | None] = field(default_factory=list)
    is_up: bool = False
    is_working: bool = False
    num_taken: int = 0
    num_forgotten: int = 0
    leak: Leak | None = None
    placement_group: PlacementGroup | None = None
    machines: dict[int, Machine] = field(default_factory=dict)
    outcomes: dict[str, dict[int, RankOutcome]] = field(default_factory=lambda: defaultdict(dict))
    ended: set[str] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take_job(self, number: int) -> TrialJob | None:
        """Its trial of that number (from 0), once it is submitted."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.jobs) > number)
        self.num_taken = max(self.num_taken, number + 1)
        return self.jobs[number]

    async def all_outcomes(
        self, key: str, world_size: int, timeout_s: float
    ) -> dict[int, RankOutcome]:
        """How an attempt ended on each rank, once it has ended on all of them.

        Raises:
            TimeoutError: one rank has failed, and not all others have ended that long after it.
        """
        outcomes = self.outcomes[key]
        async with self.changed:
            self.changed.notify_all()
            await self.changed.wait_for(
                lambda: len(outcomes) == world_size or any(o.failure for o in outcomes.values())
            )
            async with asyncio.timeout(timeout_s):
                await self.changed.wait_for(lambda: len(outcomes) == world_size)
        return outcomes

    def note_leak(self, key: str) -> None:
        """Remember what an attempt has left behind, if a rank says so."""
        if (leak := first_leak(self.outcomes[key])) is not None:
            again = any(outcome.again for outcome in self.outcomes[key].values())
            self.leak = Leak(key, leak, is_certain=not again)

    @property
    def has_ended(self) -> bool:
        """Whether all of its trials have ended."""
        return all(j is None or j.key in self.ended for j in self.jobs[self.num_forgotten :])

    def unfinished(self, reason: str) -> Iterator[tuple[str, Failed]]:
        """Its attempts that have not ended, by key, each with the event of its failure."""
        for number, job in enumerate(self.jobs):
            if job is not None and number >= self.num_forgotten and job.key not in self.ended:
                again = any(outcome.again for outcome in self.outcomes[job.key].values())
                began = number < self.num_taken and not again
                machines = self.machines
                yield job.key, Failed(reason, began=began, came_up=self.is_up, machines=machines)

    def cancel(self, reason: str) -> list[tuple[str, Failed]]:
        """Tell the lane to end, before any of its attempts has begun; returns them as failed."""
        waiting, self.jobs[:] = [job.key for job in self.jobs if job is not None], [None]
        return [(key, Failed(reason, began=False)) for key in waiting]

    def forget_attempts(self) -> None:
        """Forget its trials, which have ended."""
        self.num_forgotten = len(self.jobs)
        self.outcomes.clear()
        self.ended.clear()


@dataclass
class AttemptState:
    """Messages of one attempt, in both directions; when it was submitted, and when it was taken.

    Attributes:
        reported: its newest report as text: a NaN equals itself there.
    """

    submitted: float = field(default_factory=time.monotonic)
    taken: float | None = None
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    reported: str = ""
    answer: asyncio.Future[Answer] = field(default_factory=asyncio.Future)
    is_stopped: bool = False
    lane: LaneState | None = None
    placement_group: PlacementGroup | None = None
    machines: dict[int, Machine] = field(default_factory=dict)

    def register(self, rank: int, machine: Machine, placement_group: PlacementGroup | None) -> None:
        """One of its workers is up; arguments as of `Broker.register_worker`."""
        self.placement_group, self.machines[rank] = placement_group, machine
        self.mark_taken()

    def mark_taken(self) -> None:
        """Workers have taken it, now or before."""
        self.taken = self.taken or time.monotonic()

    @property
    def waited(self) -> float:
        """Seconds until workers took it; if none has, until now."""
        return (time.monotonic() if self.taken is None else self.taken) - self.submitted

    def is_new(self, report: Report) -> bool:
        """Take a report; False if it is the newest one again, whose answer was lost."""
        sent = report.model_dump_json()
        if self.reported == sent:
            return False
        self.reported, self.answer = sent, asyncio.Future()
        return True

    def take_answer(self, answer: Answer) -> None:
        """The driver answers its report. After STOP it reads no more events."""
        self.is_stopped = answer is Answer.STOP
        if not self.answer.done():
            self.answer.set_result(answer)


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
