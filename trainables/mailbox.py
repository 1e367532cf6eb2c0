"""Where a lane's workers and the process that drives them meet: one small actor per sweep.

Workers ask for the next trial and wait for the answer to a report; the driving side submits
trials, waits for events and answers. Nothing here knows Ray: `lane.open_mailbox` makes an actor
of it, and the tests use it as it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from results.records import Report
from trainables.worker import Answer, TrialJob


@dataclass(frozen=True)
class Ready:
    """All ranks of a lane are up and wait for a trial."""


@dataclass(frozen=True)
class Reported:
    """A trial reported and waits for an answer."""

    report: Report


@dataclass(frozen=True)
class Ended:
    """The trial's code returned on every rank; the lane is free."""


Event = Ready | Reported | Ended


@dataclass
class _Box:
    jobs: list[TrialJob | None] = field(default_factory=list)
    submitted: asyncio.Condition = field(default_factory=asyncio.Condition)
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue)


class Mailbox:
    """One box per lane. All methods are coroutines of one event loop, so none needs a lock."""

    def __init__(self) -> None:
        self._boxes: dict[str, _Box] = defaultdict(_Box)

    async def submit(self, lane: str, job: TrialJob | None) -> None:
        """Driving side: the lane's next trial; None tells the lane to end."""
        box = self._boxes[lane]
        async with box.submitted:
            box.jobs.append(job)
            box.submitted.notify_all()

    async def job(self, lane: str, number: int) -> TrialJob | None:
        """Every rank: the lane's trial of that number (from 0), once it is submitted."""
        box = self._boxes[lane]
        async with box.submitted:
            await box.submitted.wait_for(lambda: len(box.jobs) > number)
        return box.jobs[number]

    async def post(self, lane: str, event: Event) -> None:
        """Rank 0: tell the driving side, without waiting for it."""
        self._boxes[lane].events.put_nowait(event)

    async def report(self, lane: str, report: Report) -> Answer:
        """Rank 0: report and wait for the answer."""
        box = self._boxes[lane]
        box.events.put_nowait(Reported(report))
        return await box.answers.get()

    async def event(self, lane: str, timeout_s: float) -> Event | None:
        """Driving side: the next event, or None when none came in time."""
        try:
            return await asyncio.wait_for(self._boxes[lane].events.get(), timeout_s)
        except TimeoutError:
            return None

    async def answer(self, lane: str, answer: Answer) -> None:
        """Driving side: answer the report that was received last."""
        self._boxes[lane].answers.put_nowait(answer)

    async def forget(self, lane: str) -> None:
        """Driving side: the lane is gone; free its box."""
        self._boxes.pop(lane, None)
