"""Processes are let go of when no trial needs them, and what becomes of trials without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.failures import Cause, Remedy
from results.machines import Machine
from results.records import TrialState
from tests.tuning.simulate import make_spec, open_run, train
from tests.tuning.test_capacity import Cluster
from trainables.mailbox import Leak
from trainables.worker import Answer, TrialJob
from tuning.execution.capacity import IDLE_S
from tuning.execution.hired import Hired
from tuning.execution.placement import Node
from tuning.execution.sweep import SweepRun


class Lanes:
    """A crew that only remembers."""

    def __init__(self, size: int) -> None:
        self.free, self.there, self.left = size, size, list[Leak]()
        self.busy: list[str] = []
        self.recalled, self.at = 0, dict[str, list[str]]()
        self.mailbox_died = False

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

    def recall(self) -> None:
        self.recalled += 1

    def hears(self) -> bool:
        return not self.mailbox_died

    def machines(self) -> dict[str, list[str]]:
        return self.at

    def leaks(self) -> list[Leak]:
        found, self.left = self.left, []
        return found

    def close(self) -> None:
        self.keep(0)


class Sweep:
    """Two trials at once fit."""

    def __init__(self, root: Path, **spec: object) -> None:
        self.run: SweepRun = open_run(root, make_spec(**spec))
        self.cluster = Cluster(self.run.spec.resources, 2)
        self.lanes = Lanes(2)
        self.hired = Hired(self.run, self.lanes, None, self.cluster.capacity)

    def begin(self) -> TrialJob:
        assert self.hired.berth() is not None
        job = self.run.next_trial(self.hired.berth)
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
    assert sweep.hired.berth() is None
    sweep.cluster.seconds += IDLE_S
    sweep.end(first)  # after long trials a lane is not idle at once
    sweep.hired.tend()
    assert sweep.lanes.free == 1
    sweep.cluster.seconds += IDLE_S
    sweep.hired.tend()
    assert (sweep.lanes.free, sweep.lanes.busy) == (0, [second.key])


def test_a_smaller_cluster_has_fewer_lanes(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.hired.tend()
    assert sweep.lanes.free == 1
    sweep.cluster.later(1)
    sweep.hired.tend()
    assert sweep.lanes.free == 0
    assert sweep.hired.berth() is None
    sweep.end(job)
    sweep.hired.tend()
    assert sweep.lanes.free == 1
    assert sweep.hired.berth() is not None


def test_a_trial_without_processes_waits_while_others_have_theirs(sweep: Sweep) -> None:
    other, job = sweep.begin(), sweep.begin()
    sweep.lanes.there = 1
    sweep.hired.never_came_up(job, "timed out")
    sweep.hired.release(job, ruined=False)
    assert sweep.hired.berth() is None
    assert not sweep.run.interrupted
    sweep.end(other)
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
    sweep.hired.tend()  # before the driver has heard of its end
    sweep.end(first)
    sweep.end(second)
    sweep.lanes.left = [Leak(second.key, "rank 1: 800 MiB")]
    sweep.hired.close()
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [r.attempts[0].leak for r in records] == ["rank 0: 700 MiB", "rank 1: 800 MiB"]
    assert all(r.state in (TrialState.COMPLETED, TrialState.STOPPED) for r in records)


ELASTIC = {"workers": {"min": 1, "max": 2, "grow_after": 30.0}}


def test_a_trial_grows_into_room_that_came_back(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC, scheduler={"name": "none", "max_t": 9})
    sweep.cluster.later(1)
    job = sweep.begin()
    train(sweep.run, job, upto=2)
    sweep.hired.tend()
    assert sweep.hired.answer(job) is Answer.CONTINUE
    sweep.cluster.later(1, 1)
    sweep.hired.tend()
    sweep.cluster.seconds += 30
    sweep.hired.tend()
    assert sweep.hired.answer(job) is Answer.PAUSE
    sweep.run.on_ended(job.trial_id)
    record = sweep.run.records[job.trial_id]
    assert (record.state, record.reason) == (TrialState.PENDING, "goes on with more workers")
    sweep.hired.release(job, ruined=False)

    again = sweep.begin()
    assert (again.key, again.workers) == (f"{job.trial_id}.2", 2)
    sweep.end(again)
    record = sweep.run.records[job.trial_id]
    assert record.state is TrialState.COMPLETED
    assert [(a.workers, a.cpus, a.error) for a in record.attempts] == [(1, 1, None), (2, 2, None)]


def test_a_trial_shrinks_when_its_workers_are_lost(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    job = sweep.begin()
    assert job.workers == 2
    train(sweep.run, job, upto=1)
    sweep.cluster.nodes = [Node(1, 0)]
    sweep.run.on_failed(job.trial_id, "rank 1: ActorDiedError: its node has died")
    sweep.hired.release(job, ruined=False)
    again = sweep.begin()  # at once, before anybody looked at the cluster again
    assert (again.trial_id, again.workers) == (job.trial_id, 1)


def test_fewer_workers_are_tried_where_so_many_do_not_come_up(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    job = sweep.begin()
    sweep.lanes.there = 0
    sweep.hired.never_came_up(job, "timed out")
    sweep.hired.release(job, ruined=False)
    again = sweep.begin()
    assert (again.workers, sweep.run.gave_up) == (1, False)
    assert sweep.run.records[job.trial_id].attempts[0].error is None, "not to blame"
    sweep.hired.never_came_up(again, "timed out")
    assert sweep.run.gave_up


def test_what_waits_for_room_that_is_gone_is_called_back(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    sweep.begin()
    sweep.hired.tend()
    assert not sweep.lanes.recalled
    sweep.cluster.later(1)
    sweep.hired.tend()
    assert sweep.lanes.recalled


def test_who_loses_its_listener_is_tried_again(sweep: Sweep) -> None:
    job = sweep.begin()
    remedy = sweep.hired.lost_listener(job)
    sweep.hired.release(job, ruined=False)
    assert remedy is Remedy.RETRY
    assert not sweep.hired.deaf
    assert sweep.run.records[job.trial_id].attempts[0].cause is Cause.INFRASTRUCTURE
    assert sweep.begin().key == f"{job.trial_id}.2"


def test_without_a_mailbox_no_trial_begins_and_none_is_charged(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    sweep.lanes.mailbox_died = True
    for job in (first, second):
        assert sweep.hired.lost_listener(job) is None
    assert sweep.hired.deaf
    assert sweep.hired.berth() is None
    assert not sweep.run.interrupted
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [(r.state, r.attempts[0].error) for r in records] == [(TrialState.PENDING, None)] * 2


def test_without_a_mailbox_nobody_knows_what_came_up(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.lanes.there, sweep.lanes.mailbox_died = 0, True
    sweep.hired.never_came_up(job, "timed out")
    assert sweep.hired.deaf
    assert not sweep.run.gave_up


SICK, WELL = Machine(id="a", name="alpha"), Machine(id="b", name="beta")
ECC = {"on_log": {"ECC error": "retry_elsewhere"}}


@pytest.fixture
def two(tmp_path: Path) -> Sweep:
    """A machine for one trial, and another."""
    found = Sweep(tmp_path / "sweep", failure=ECC)
    found.cluster.nodes = [Node(1, 0, SICK.id), Node(1, 0, WELL.id)]
    return found


def fail(sweep: Sweep, job: TrialJob, *machines: Machine) -> None:
    at = dict(enumerate(machines))
    sweep.run.on_failed(job.trial_id, "rank 0: RuntimeError: ECC error", machines=at)
    sweep.hired.release(job, ruined=True)


def test_a_trial_keeps_off_the_machine_on_which_it_failed(two: Sweep) -> None:
    job = two.begin()
    fail(two, job, SICK)
    record = two.run.records[job.trial_id]
    assert (record.state, record.blamed) == (TrialState.PENDING, (SICK,))
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, (SICK.id,))
    attempt = two.run.records[job.trial_id].attempts[-1]
    assert (attempt.kept_off, attempt.where) == ((SICK,), "kept off alpha (a)")


def test_it_waits_for_another_machine_while_others_run(two: Sweep) -> None:
    job, other = two.begin(), two.begin()
    two.lanes.at = {other.key: [WELL.id]}
    fail(two, job, SICK)
    third = two.begin()
    assert third.trial_id not in (job.trial_id, other.trial_id), "the sick machine is not idle"
    two.lanes.at[third.key] = [SICK.id]
    two.end(other)
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, (SICK.id,))


def test_where_nobody_knows_who_runs_where_it_waits(two: Sweep) -> None:
    job, other = two.begin(), two.begin()
    fail(two, job, SICK)
    assert two.hired.berth([SICK]) is None
    two.end(other)
    assert two.hired.berth([SICK]) is not None


def test_where_there_is_no_other_machine_it_is_tried_there_again(two: Sweep) -> None:
    job = two.begin()
    fail(two, job, SICK)
    fail(two, two.begin(), WELL)
    again = two.begin()
    attempt = two.run.records[job.trial_id].attempts[-1]
    assert (again.avoid, attempt.in_place) == ((), True)
    assert attempt.where == (
        "there is no machine but alpha (a), beta (b), so it is tried there again"
    )


def test_a_machine_that_has_left_is_not_kept_off(two: Sweep) -> None:
    job = two.begin()
    fail(two, job, SICK)
    two.cluster.nodes = [Node(1, 0, WELL.id)]
    two.cluster.seconds += 10
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, ())
    assert not two.run.records[job.trial_id].attempts[-1].where


def test_a_machine_that_comes_back_is_known_again(two: Sweep) -> None:
    sick = SICK.model_copy(update={"address": "192.0.2.7"})
    job = two.begin()
    fail(two, job, sick)
    two.cluster.nodes = [Node(1, 0, "c", sick.address), Node(1, 0, WELL.id, "192.0.2.8")]
    two.cluster.seconds += 10
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, ("c",))
    assert two.run.records[job.trial_id].attempts[-1].where == "kept off alpha (c)"


def test_an_elastic_trial_does_with_the_machines_that_are_left(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", failure=ECC, resources=ELASTIC)
    sweep.cluster.nodes = [Node(1, 0, SICK.id), Node(1, 0, WELL.id)]
    job = sweep.begin()
    assert job.workers == 2
    fail(sweep, job, SICK, WELL)
    again = sweep.begin()
    assert (again.workers, again.avoid) == (1, (SICK.id,)), "rank 0 failed"


def test_when_only_waiting_trials_are_left_nothing_is_proposed(two: Sweep) -> None:
    jobs = [two.begin(), two.begin()]
    fail(two, jobs[0], SICK)
    assert len(two.run.records) == 2
    assert two.run.next_trial(lambda blamed: None) is None
    two.end(jobs[1])
    two.cluster.nodes = [Node(1, 0, WELL.id)]
    assert [two.begin().trial_id] == [jobs[0].trial_id]
    two.cluster.later(2)
    assert two.begin().trial_id == "t0002", "no proposal was lost"
