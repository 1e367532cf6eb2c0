"""Where workers and the driver meet: one small actor per sweep.

Workers ask for their lane's next trial and wait for the answer to a report; the driving side
submits trials, waits for their events and answers. Nothing here knows Ray: `start_broker` makes an
actor of it, and the tests use it as it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from results.records.machines import Machine
from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch.events import Event, Failed, Reported
from trainables.launch.trial_outcome import (
    Leak,
    Next,
    Outcome,
    ReleasedLane,
    event_of,
    leak_of,
    next_of,
)

if TYPE_CHECKING:
    from ray.actor import ActorHandle
    from ray.util.placement_group import PlacementGroup


_SETTLE_S = 5.0
_ANSWERS_S = 60.0
_FIRST_STEP_S = 3.0
"""Seconds that the first lane's first step is left alone with the cores: it imports, too."""


@dataclass
class _Lane:
    jobs: list[TrialJob | None] = field(default_factory=list)
    up: bool = False
    works: bool = False
    taken: int = 0
    leak: Leak | None = None
    group: PlacementGroup | None = None
    machines: dict[int, Machine] = field(default_factory=dict)
    outcomes: dict[str, dict[int, Outcome]] = field(default_factory=lambda: defaultdict(dict))
    ended: set[str] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


@dataclass
class _Talk:
    """Of one attempt: what it says, and what it is told."""

    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    answers: asyncio.Queue[Answer] = field(default_factory=asyncio.Queue)
    stopped: bool = False
    lane: _Lane | None = None
    group: PlacementGroup | None = None
    machines: dict[int, Machine] = field(default_factory=dict)


class Broker:
    """Lanes by id, attempts by key (`TrialJob.key`).

    All methods are coroutines of one event loop, so none needs a lock.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = defaultdict(_Lane)
        self._gone: dict[str, str] = {}
        self._talks: dict[str, _Talk] = {}
        self._came_or_went = asyncio.Condition()

    async def submit(self, lane: str, job: TrialJob | None) -> None:
        """Driver: the lane's next trial; None tells the lane to end."""
        if job is not None:
            await self.begin(job.key)
        if lane in self._gone:  # it went while the job was on its way
            if job is not None:
                await self.post(job.key, Failed(self._gone[lane], began=False))
            return
        box = self._lanes[lane]
        async with box.changed:
            box.jobs.append(job)
            box.changed.notify_all()
        if job is None:
            await self._tell_who_comes_next()

    async def may_start(self, lane: str, after: str) -> bool:
        """Driver: waits until the lane `after` works, or is up for a while, or gone.

        Returns:
            False if `lane` is to end by now.
        """

        def free() -> bool:
            return None in self._lanes[lane].jobs or after in self._gone

        async with self._came_or_went:
            await self._came_or_went.wait_for(lambda: free() or self._lanes[after].up)
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_STEP_S):
                    await self._came_or_went.wait_for(lambda: free() or self._lanes[after].works)
        return None not in self._lanes[lane].jobs

    async def lanes_up(self) -> dict[str, list[str]]:
        """Driver: the lanes that have workers, and the machine of each."""
        return {
            lane: [machine.id for machine in box.machines.values()]
            for lane, box in self._lanes.items()
            if box.up
        }

    async def recall(self, lane: str) -> None:
        """Driver: a lane that is not up is not waited for; its trials fail without having begun."""
        box = self._lanes[lane]
        if box.up or lane in self._gone:
            return
        waiting, box.jobs[:] = [job for job in box.jobs if job is not None], [None]
        for job in waiting:
            await self.post(job.key, Failed("the room for its workers is gone", began=False))
        await self._tell_who_comes_next()

    async def hold_lane(
        self, lane: str, rank: int, machine: Machine, group: PlacementGroup | None
    ) -> None:
        """A worker: where it is, and the placement group that the lane's processes hold."""
        self._lanes[lane].machines[rank] = machine
        self._lanes[lane].group = group

    async def _tell_who_comes_next(self) -> None:
        async with self._came_or_went:
            self._came_or_went.notify_all()

    async def job(self, lane: str, number: int) -> TrialJob | None:
        """Every rank: the lane's trial of that number (from 0), once it is submitted."""
        box = self._lanes[lane]
        if not box.up:
            box.up = True
            await self._tell_who_comes_next()
        async with box.changed:
            await box.changed.wait_for(lambda: len(box.jobs) > number)
        box.taken = max(box.taken, number + 1)
        taken = box.jobs[number]
        if taken is not None and taken.key in self._talks:
            self._talks[taken.key].lane = box
        return taken

    async def settle(self, lane: str, key: str, rank: int, world: int, outcome: Outcome) -> Next:
        """Every rank: the trial is over here. What is next for the lane?

        Waits for the other ranks: as long as it takes while all is well, a moment once one failed,
        because the others may be waiting for it in a collective for ever.
        """
        box = self._lanes[lane]
        outcomes = box.outcomes[key]
        outcomes[rank] = outcome
        async with box.changed:
            box.changed.notify_all()
            await box.changed.wait_for(
                lambda: len(outcomes) == world or any(o.failure for o in outcomes.values())
            )
            try:
                async with asyncio.timeout(_SETTLE_S):
                    await box.changed.wait_for(lambda: len(outcomes) == world)
            except TimeoutError:
                return Next.LEAVE
        if key not in box.ended:
            box.ended.add(key)
            await self.post(key, event_of(outcomes, box.machines))
            await self._note_work(box)
        then, leak = next_of(outcomes), leak_of(outcomes)
        if then is Next.RETIRE and leak is not None:
            box.leak = Leak(key, leak)
        return then

    async def lane_gone(self, lane: str, reason: str) -> ReleasedLane:
        """Driver: the lane's processes are no more; tell the trials that were theirs."""
        self._gone[lane] = reason
        box = self._lanes.pop(lane, _Lane())
        for number, job in enumerate(box.jobs):
            if job is not None and job.key not in box.ended:
                began = number < box.taken
                failed = Failed(reason, began=began, came_up=box.up, machines=box.machines)
                await self.post(job.key, failed)
        await self._tell_who_comes_next()
        return ReleasedLane(box.leak, box.group)

    async def begin(self, key: str) -> None:
        """Driver: an attempt will be heard of."""
        self._talks.setdefault(key, _Talk())

    async def post(self, key: str, event: Event) -> None:
        """Tell the driving side, without waiting for it."""
        talk = self._talks.get(key)
        if talk is None:
            return
        if isinstance(event, Failed) and talk.machines:
            event = replace(event, machines=talk.machines)
        talk.events.put_nowait(event)
        if talk.stopped and not isinstance(event, Reported):
            del self._talks[key]  # its last word, and nobody listens

    async def report(self, key: str, report: Report) -> Answer:
        """Rank 0: report and wait for the answer."""
        talk = self._talks.get(key)
        if talk is None or talk.stopped:
            return Answer.STOP
        talk.events.put_nowait(Reported(report))
        if talk.lane is not None:
            await self._note_work(talk.lane)
        return await talk.answers.get()

    async def _note_work(self, box: _Lane) -> None:
        """The lane made a report, or came through a trial without one."""
        if not box.works:
            box.works = True
            await self._tell_who_comes_next()

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

    async def hold(
        self, key: str, rank: int, machine: Machine, group: PlacementGroup | None
    ) -> None:
        """A worker: where it is, and the placement group that the attempt's processes hold."""
        if (talk := self._talks.get(key)) is not None:
            talk.group, talk.machines[rank] = group, machine

    async def forget(self, key: str) -> PlacementGroup | None:
        """Driver: the attempt's processes are ended; gives what they may still hold."""
        talk = self._talks.pop(key, None)
        return None if talk is None else talk.group


def start_broker() -> ActorHandle[Broker]:
    """Start the mailbox actor, on the driver's machine, so that it is not lost with another.

    It holds no CPU and serves any number of waiting callers.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Broker).options(num_cpus=0, max_concurrency=10_000, scheduling_strategy=here)
    return actor.remote()  # type: ignore[return-value]  # it is an actor's handle


def is_alive(broker: ActorHandle[Broker]) -> bool:
    """Whether the mailbox still answers; its process may have been killed."""
    import ray

    count: Any = broker.lanes_up.remote()
    try:
        ray.get(count, timeout=_ANSWERS_S)
    except ray.exceptions.RayError:
        return False
    return True
