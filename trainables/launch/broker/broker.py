"""The broker: the actor through which the workers of a sweep and its driver talk.

Workers ask for their lane's next trial and wait for the answer to a report. The driver submits
trials, waits for their events and answers. The class knows nothing of Ray; see `start_broker`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from results.records.machines import Machine
from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch.broker.events import (
    Event,
    Failed,
    LaneAction,
    Leak,
    RankOutcome,
    Reported,
    lane_action,
    merge_outcomes,
)
from trainables.launch.broker.rank_reports import RankReports
from trainables.launch.broker.state import AttemptState, Exchange, LaneState

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

_POLL_S = 0.05


class Broker(RankReports):
    """Lanes by id, attempts by key (`TrialJob.key`).

    All methods are coroutines of one event loop, so no lock is needed. Those that workers call may
    be called again with the same arguments: a worker does so when an answer is lost.

    Args:
        ranks_timeout_s: seconds that a failed rank waits for the outcomes of the others.
        first_step_s: seconds that other lanes wait for the first step of the first lane.
    """

    def __init__(self, ranks_timeout_s: float = 5.0, first_step_s: float = 3.0) -> None:
        super().__init__()
        self._ranks_timeout_s, self._first_step_s = ranks_timeout_s, first_step_s
        self._lanes: dict[str, LaneState] = defaultdict(LaneState)
        self._exit_reasons: dict[str, str] = {}
        self._attempts: dict[str, AttemptState] = {}
        self._lanes_changed = asyncio.Condition()
        self._exchange = Exchange(self._take_event)

    async def submit(self, lane_id: str, job: TrialJob | None) -> None:
        """Driver: add the lane's next trial; None tells the lane to end."""
        if job is not None:
            await self.begin_attempt(job.key)
        if lane_id in self._exit_reasons:  # it ended while the job was being sent
            if job is not None:
                await self.post_event(job.key, Failed(self._exit_reasons[lane_id], began=False))
            return
        lane = self._lanes[lane_id]
        async with lane.changed:
            lane.jobs.append(job)
            lane.changed.notify_all()
        if job is None:
            await self._notify_starting_lanes()

    async def wait_to_start(self, lane_id: str, after: str) -> bool:
        """Driver: wait until the lane `after` works, has been up for a while, or has ended.

        Returns:
            False if `lane_id` has been told to end in the meantime.
        """

        def ready() -> bool:
            return None in self._lanes[lane_id].jobs or after in self._exit_reasons

        async with self._lanes_changed:
            await self._lanes_changed.wait_for(lambda: ready() or self._lanes[after].is_up)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._first_step_s):
                    await self._lanes_changed.wait_for(
                        lambda: ready() or self._lanes[after].is_working
                    )
        return None not in self._lanes[lane_id].jobs

    async def lanes_up(self) -> dict[str, list[str]]:
        """Driver: the lanes whose workers are up, and the ids of their machines."""
        return {
            lane_id: [machine.id for machine in lane.machines.values()]
            for lane_id, lane in self._lanes.items()
            if lane.is_up
        }

    async def cancel_start(self, lane_id: str) -> None:
        """Driver: if the lane is not up yet, end it; its trials fail without having begun."""
        lane = self._lanes[lane_id]
        if lane.is_up or lane_id in self._exit_reasons:
            return
        for key, failed in lane.cancel("the resources for its workers are gone"):
            await self.post_event(key, failed)
        await self._notify_starting_lanes()

    async def register_lane_worker(
        self, lane_id: str, rank: int, machine: Machine, placement_group: PlacementGroup | None
    ) -> None:
        """A worker: its machine, and the placement group that the lane's processes hold."""
        self._lanes[lane_id].machines[rank] = machine
        self._lanes[lane_id].placement_group = placement_group

    async def _notify_starting_lanes(self) -> None:
        async with self._lanes_changed:
            self._lanes_changed.notify_all()

    async def take_job(self, lane_id: str, number: int) -> TrialJob | None:
        """Every rank: the lane's trial of that number (from 0), once it is submitted."""
        lane = self._lanes[lane_id]
        if not lane.is_up:
            lane.is_up = True
            await self._notify_starting_lanes()
        job = await lane.take_job(number)
        if job is not None and job.key in self._attempts:
            self._attempts[job.key].lane = lane
            self._attempts[job.key].mark_taken()
        return job

    async def finish_trial(
        self, lane_id: str, key: str, rank: int, world_size: int, outcome: RankOutcome
    ) -> LaneAction:
        """Every rank: record how the trial ended here; returns what the lane does next.

        Waits for the other ranks: after a failure only for a short time, because they may wait for
        the failed rank in a collective for ever.
        """
        lane = self._lanes[lane_id]
        lane.outcomes[key][rank] = outcome
        try:
            outcomes = await lane.all_outcomes(key, world_size, self._ranks_timeout_s)
        except TimeoutError:
            lane.note_leak(key)
            return LaneAction.ABORT
        if key not in lane.ended:
            lane.ended.add(key)
            await self.post_event(key, merge_outcomes(outcomes, lane.machines))
            await self._mark_working(lane)
        lane.note_leak(key)
        return lane_action(outcomes)

    async def remove_lane(
        self, lane_id: str, reason: str
    ) -> tuple[Leak | None, PlacementGroup | None]:
        """Driver: the lane's processes have ended; its unfinished trials fail for that reason.

        Returns:
            Why it was retired, if a trial left memory behind, and the placement group it held.
        """
        self._exit_reasons[lane_id] = reason
        lane = self._lanes.pop(lane_id, LaneState())
        for key, failed in lane.unfinished(reason):
            await self.post_event(key, failed)
        await self._notify_starting_lanes()
        return lane.leak, lane.placement_group

    async def forget_attempts(self, wait_s: float) -> bool:
        """Driver: forget the attempts of all lanes, once they have ended; False if one does not."""
        until = time.monotonic() + wait_s
        while self._attempts or not all(lane.has_ended for lane in self._lanes.values()):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_POLL_S)
        for lane in self._lanes.values():
            lane.forget_attempts()
        return True

    async def begin_attempt(self, key: str) -> None:
        """Driver: accept messages of an attempt from now on."""
        self._attempts.setdefault(key, AttemptState())

    async def post_event(self, key: str, event: Event) -> None:
        """Send an event to the driver, without waiting for it."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if isinstance(event, Failed) and attempt.machines:
            event = replace(event, machines=attempt.machines)
        self._post(key, attempt, event)
        if attempt.is_stopped and not isinstance(event, Reported):
            del self._attempts[key]  # this is its last event, and the driver does not wait for it

    def _post(self, key: str, attempt: AttemptState, event: Event) -> None:
        attempt.events.put_nowait(event)
        self._exchange.post(key)

    async def report(self, key: str, report: Report) -> Answer:
        """Rank 0: report and wait for the answer, once more if the answer was lost on its way."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.is_stopped:
            return Answer.STOP
        if attempt.is_new(report):
            self._post(key, attempt, Reported(report))
        if attempt.lane is not None:
            await self._mark_working(attempt.lane)
        return await asyncio.shield(attempt.answer)

    async def _mark_working(self, lane: LaneState) -> None:
        """The lane made a report, or finished a trial without one."""
        if not lane.is_working:
            lane.is_working = True
            await self._notify_starting_lanes()

    async def next_event(self, key: str) -> Event:
        """Driver: wait for the attempt's next event."""
        await self.begin_attempt(key)
        attempt = self._attempts[key]
        return self._handed_out(key, attempt, await attempt.events.get())

    def _take_event(self, key: str) -> Event | None:
        """Remove an attempt's next event; None if `next_event` has it, or there is none."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.is_stopped or attempt.events.empty():
            return None
        return self._handed_out(key, attempt, attempt.events.get_nowait())

    def _handed_out(self, key: str, attempt: AttemptState, event: Event) -> Event:
        """An event for the driver, with the time until workers took its attempt."""
        if not isinstance(event, Reported):
            self._attempts.pop(key, None)
        return replace(event, waited=attempt.waited)

    async def exchange(
        self, call: str, answers: Mapping[str, Answer]
    ) -> Sequence[tuple[str, Event]]:
        """Driver: answer reports, and wait for the next events of any attempts.

        Args:
            call: a new name; that of the call before if its reply was lost.
            answers: by keys of attempts.

        Returns:
            Keys of attempts, each with an event, oldest first.
        """
        if self._exchange.begin(call):
            for key, answer in answers.items():
                await self.answer(key, answer)
        return await self._exchange.reply(call)

    async def answer(self, key: str, answer: Answer) -> None:
        """Driver: answer the attempt's report. After STOP its events are not read any more."""
        if (attempt := self._attempts.get(key)) is not None:
            attempt.take_answer(answer)

    async def register_worker(
        self,
        key: str,
        rank: int,
        machine: Machine,
        placement_group: PlacementGroup | None,
    ) -> None:
        """A worker: its machine, and the placement group that the attempt's processes hold."""
        if (attempt := self._attempts.get(key)) is not None:
            attempt.register(rank, machine, placement_group)

    async def attempt_machines(self) -> dict[str, list[str]]:
        """Driver: the attempts whose workers have registered, and the ids of their machines."""
        return {
            key: [machine.id for machine in attempt.machines.values()]
            for key, attempt in self._attempts.items()
            if attempt.machines
        }

    async def forget_attempt(self, key: str) -> PlacementGroup | None:
        """Driver: the attempt's processes have ended; returns the placement group they held."""
        attempt = self._attempts.pop(key, None)
        return None if attempt is None else attempt.placement_group
