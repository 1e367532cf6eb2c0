"""Where workers and the driver meet: one small actor per sweep.

Workers ask for their lane's next trial and wait for the answer to a report; the driving side
submits trials, waits for their events and answers. Nothing here knows Ray: `open_mailbox` makes an
actor of it, and the tests use it as it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from results.records import Report
from trainables.worker import Answer, TrialJob

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.util.placement_group import PlacementGroup


@dataclass(frozen=True)
class Reported:
    """A trial reported and waits for an answer."""

    report: Report


@dataclass(frozen=True)
class Ended:
    """The trial's code returned on every rank."""


@dataclass(frozen=True)
class Failed:
    """The trial's processes ended before it did.

    Attributes:
        reason: one line: which rank, and how.
        began: whether the trial had begun; if not, it is not to blame.
    """

    reason: str
    began: bool = True


Event = Reported | Ended | Failed


@dataclass
class _Talk:
    """Of one attempt: what it says, and what it is told."""

    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue)
    stopped: bool = False
    group: PlacementGroup | None = None


@dataclass
class _Lane:
    jobs: list[TrialJob | None] = field(default_factory=list)
    taken: int = 0
    ended: set[str] = field(default_factory=set)
    submitted: asyncio.Condition = field(default_factory=asyncio.Condition)


class Mailbox:
    """Lanes by id, attempts by key (`TrialJob.key`).

    All methods are coroutines of one event loop, so none needs a lock.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = defaultdict(_Lane)
        self._talks: dict[str, _Talk] = {}

    async def submit(self, lane: str, job: TrialJob | None) -> None:
        """Driver: the lane's next trial; None tells the lane to end."""
        box = self._lanes[lane]
        if job is not None:
            await self.begin(job.key)
        async with box.submitted:
            box.jobs.append(job)
            box.submitted.notify_all()

    async def job(self, lane: str, number: int) -> TrialJob | None:
        """Every rank: the lane's trial of that number (from 0), once it is submitted."""
        box = self._lanes[lane]
        async with box.submitted:
            await box.submitted.wait_for(lambda: len(box.jobs) > number)
        box.taken = max(box.taken, number + 1)
        return box.jobs[number]

    async def ended(self, lane: str, key: str) -> None:
        """Rank 0: the trial ended on every rank."""
        self._lanes[lane].ended.add(key)
        await self.post(key, Ended())

    async def lane_gone(self, lane: str, reason: str) -> None:
        """Driver: the lane's processes are no more; tell the trials that were theirs."""
        box = self._lanes.pop(lane, _Lane())
        for number, job in enumerate(box.jobs):
            if job is not None and job.key not in box.ended:
                await self.post(job.key, Failed(reason, began=number < box.taken))

    async def begin(self, key: str) -> None:
        """Driver: an attempt will be heard of."""
        self._talks.setdefault(key, _Talk())

    async def post(self, key: str, event: Event) -> None:
        """Tell the driving side, without waiting for it."""
        talk = self._talks.get(key)
        if talk is None:
            return
        talk.events.put_nowait(event)
        if talk.stopped and not isinstance(event, Reported):
            del self._talks[key]  # its last word, and nobody listens

    async def report(self, key: str, report: Report) -> Answer:
        """Rank 0: report and wait for the answer."""
        talk = self._talks.get(key)
        if talk is None or talk.stopped:
            return Answer.STOP
        talk.events.put_nowait(Reported(report))
        return await talk.answers.get()

    async def event(self, key: str) -> Event:
        """Driving side: the attempt's next event."""
        await self.begin(key)
        event = await self._talks[key].events.get()
        if not isinstance(event, Reported):
            self._talks.pop(key, None)
        return event

    async def answer(self, key: str, answer: Answer) -> None:
        """Driver: answer the attempt's report. After STOP nobody listens to it any more."""
        if (talk := self._talks.get(key)) is not None:
            talk.stopped = answer is Answer.STOP
            talk.answers.put_nowait(answer)

    async def hold(self, key: str, group: PlacementGroup | None) -> None:
        """A worker: the attempt's processes hold this placement group."""
        if (talk := self._talks.get(key)) is not None:
            talk.group = group

    async def forget(self, key: str) -> PlacementGroup | None:
        """Driver: the attempt's processes are ended; gives what they may still hold."""
        talk = self._talks.pop(key, None)
        return None if talk is None else talk.group


def open_mailbox() -> ActorHandle[Mailbox]:
    """Start the mailbox actor. It holds no CPU and serves any number of waiting callers."""
    import ray

    return ray.remote(Mailbox).options(num_cpus=0, max_concurrency=10_000).remote()  # type: ignore[return-value]  # it is an actor's handle
