"""Processes are let go of when no trial needs them, and what becomes of trials without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records import TrialState
from tests.tuning.simulate import make_spec, open_run, train
from tests.tuning.test_capacity import Cluster
from trainables.mailbox import Leak
from trainables.worker import TrialJob
from tuning.execution.capacity import IDLE_S
from tuning.execution.hired import Hired
from tuning.execution.sweep import SweepRun


class Lanes:
    """A crew that only remembers."""

    def __init__(self, size: int) -> None:
        self.free, self.there, self.left = size, size, list[Leak]()
        self.busy: list[str] = []

    def start(self, job: TrialJob) -> None:
        self.free = max(0, self.free - 1)
        self.busy.append(job.key)

    def release(self, key: str, *, ruined: bool = False) -> None:
        self.busy.remove(key)
        self.free += not ruined

    def keep(self, idle: int) -> None:
        self.free = min(self.free, idle)

    def up(self) -> int:
        return self.there

    def leaks(self) -> list[Leak]:
        found, self.left = self.left, []
        return found

    def close(self) -> None:
        self.keep(0)


class Sweep:
    """Two trials at once fit."""

    def __init__(self, root: Path) -> None:
        self.run: SweepRun = open_run(root, make_spec())
        self.cluster = Cluster(self.run.spec.resources, 2)
        self.lanes = Lanes(2)
        self.hired = Hired(self.run, self.lanes, None, self.cluster.capacity)

    def begin(self) -> TrialJob:
        job = self.run.next_trial()
        assert job is not None
        self.hired.start(job)
        return job

    def end(self, job: TrialJob) -> None:
        train(self.run, job)
        self.run.on_ended(job.trial_id)
        self.hired.release(job, ruined=False)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "sweep")


def test_lanes_wait_for_trials_and_are_given_back_after_a_while(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    assert not sweep.hired.room(2)
    sweep.cluster.seconds += IDLE_S
    sweep.end(first)  # after long trials a lane is not idle at once
    sweep.hired.tend(running=1)
    assert sweep.lanes.free == 1
    sweep.cluster.seconds += IDLE_S
    sweep.hired.tend(running=1)
    assert (sweep.lanes.free, sweep.lanes.busy) == (0, [second.key])


def test_a_smaller_cluster_has_fewer_lanes(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.hired.tend(running=1)
    assert sweep.lanes.free == 1
    sweep.cluster.later(1)
    sweep.hired.tend(running=1)
    assert sweep.lanes.free == 0
    assert not sweep.hired.room(1)
    sweep.end(job)
    sweep.hired.tend(running=0)
    assert sweep.lanes.free == 1
    assert sweep.hired.room(0)


def test_a_trial_without_processes_waits_while_others_have_theirs(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.lanes.there = 1
    sweep.hired.never_came_up(job, "timed out")
    sweep.hired.release(job, ruined=False)
    assert not sweep.hired.room(1)
    assert not sweep.run.interrupted
    assert sweep.begin().key == f"{job.trial_id}.2"


def test_where_no_trial_has_any_the_session_ends(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.lanes.there = 0
    sweep.hired.never_came_up(job, "timed out")
    assert sweep.run.gave_up
    assert sweep.run.problem == "no trial can start: timed out"


def test_leaks_are_in_the_records(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    sweep.lanes.left = [Leak(first.key, "rank 0: 700 MiB")]
    sweep.hired.tend(running=2)  # before the driver has heard of its end
    sweep.end(first)
    sweep.end(second)
    sweep.lanes.left = [Leak(second.key, "rank 1: 800 MiB")]
    sweep.hired.close()
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [r.attempts[0].leak for r in records] == ["rank 0: 700 MiB", "rank 1: 800 MiB"]
    assert all(r.state in (TrialState.COMPLETED, TrialState.STOPPED) for r in records)
