"""Lanes that train nothing: one process reports for all of them, at a given rate.

They speak the broker's protocol as the workers of real lanes do: take a job, append each report to
the trial's records, report, wait for the answer, say how the trial ended. What a worker would do
beside that (train, flush its records to the disk) is left out: it is no cost of the driver.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.work import loss_at
from results.records.machines import Machine
from results.records.reports import ReportWriter
from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import RankOutcome
from trainables.launch.pool import WorkerPool

if TYPE_CHECKING:
    from ray.actor import ActorHandle

TAKEN, REPORTED, ENDED = "taken", "reported", "ended"
"""Kinds of times: a lane took a trial; it reported; its trial ended."""
_CALLS = 10_000


class LaneWorkers:
    """The workers of all lanes, one for each.

    Args:
        broker: of the sweep.
        lanes: their ids.
        interval_s: from a report of a lane to its next one; 0: it reports as soon as it may.
        reports: of each trial.
    """

    def __init__(
        self, broker: ActorHandle[Broker], lanes: list[str], interval_s: float, reports: int
    ) -> None:
        self._broker, self._interval_s, self._reports = broker, interval_s, reports
        self._times: list[tuple[str, str, float, float]] = []
        self._tasks = [
            asyncio.ensure_future(self._run(lane, (i + 1) / len(lanes)))
            for i, lane in enumerate(lanes)
        ]

    async def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    async def save(self, file: Path) -> None:
        """Write each lane, what happened, when (Unix seconds), and how long an answer took."""
        file.write_text(json.dumps(self._times))

    async def _run(self, lane: str, share: float) -> None:
        """Run trials; the first one has this share of the reports, so that not all end at once."""
        call: Any = self._broker
        here = Machine(id=lane, name=lane, address="127.0.0.1")
        await call.register_lane_worker.remote(lane, 0, here, None)
        number, due = 0, time.time() + share * self._interval_s
        while (job := await call.take_job.remote(lane, number)) is not None:
            self._times.append((lane, TAKEN, time.time(), 0.0))
            reports = self._reports if number else ceil(share * self._reports)
            due = await self._train(lane, job, reports, max(due, time.time()))
            self._times.append((lane, ENDED, time.time(), 0.0))
            await call.finish_trial.remote(lane, job.key, 0, 1, RankOutcome())
            number += 1

    async def _train(self, lane: str, job: TrialJob, reports: int, due: float) -> float:
        """Make the reports of a trial; returns when the next one of the lane would be due."""
        writer, call = ReportWriter(job.paths, job.attempt, new=True), self._broker.report
        for step in range(1, reports + 1):
            await asyncio.sleep(max(0.0, due - time.time()))
            loss = loss_at(job.config["x"], job.config["learning_rate"], step)
            report = Report(
                step=step, metrics={"loss": loss}, attempt=job.attempt, time=time.time()
            )
            with open(job.paths.reports, "a") as records:
                records.write(f"{writer.next_line(report)}\n")
            began = time.time()
            answer: Any = call.remote(job.key, report)
            stops = await answer is not Answer.CONTINUE
            self._times.append((lane, REPORTED, began, time.time() - began))
            due += self._interval_s
            if stops:
                break
        return due


class FakeLanePool(WorkerPool):
    """A worker pool of such lanes.

    Args:
        broker: of the sweep.
        lanes: number of them, of one worker each.
        interval_s, reports: see `LaneWorkers`.
        folder: gets the ids of the processes, and at the end what happened in the lanes.
    """

    def __init__(
        self,
        broker: ActorHandle[Broker],
        lanes: int,
        interval_s: float,
        reports: int,
        folder: Path,
    ) -> None:
        import ray

        super().__init__(broker)
        self._folder = folder
        self._idle = [f"lane-{i}" for i in range(lanes)]
        self._busy: dict[str, str] = {}
        self._lanes = lanes
        start: Any = ray.remote(LaneWorkers).options(num_cpus=0, max_concurrency=_CALLS)
        self._workers = start.remote(broker, list(self._idle), interval_s, reports)
        asked: Any = broker
        pids = {
            "broker": ray.get(asked.__ray_call__.remote(lambda _: os.getpid())),
            "lanes": ray.get(self._workers.pid.remote()),
        }
        (folder / "pids.json").write_text(json.dumps(pids))

    def start(self, job: TrialJob) -> None:
        """Give an idle lane its next trial."""
        self._busy[job.key] = lane = self._idle.pop()
        self._broker.submit.remote(lane, job)

    def release(self, key: str, *, unusable: bool = False) -> None:
        """Free the attempt's lane."""
        self._broker.answer.remote(key, Answer.STOP)
        self._idle.append(self._busy.pop(key))

    def retire_idle(self, keep: int) -> None:
        """Nothing: there are no processes to end."""

    def workers_up(self) -> int:
        """All lanes."""
        return self._lanes

    def machines(self) -> dict[str, list[str]]:
        """Lanes do not leave."""
        return {}

    def close(self) -> None:
        """Write what happened."""
        import ray

        ray.get(self._workers.save.remote(self._folder / "times.json"))
