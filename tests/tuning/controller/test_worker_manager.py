"""Processes are let go of when no trial needs them, and what becomes of trials without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records.failures import Cause, Remedy
from results.records.trial import TrialState
from tests.tuning.crew import ELASTIC, Sweep
from tests.tuning.simulate import train
from trainables.job import Answer
from trainables.launch.events import Leak
from tuning.controller.resources.capacity import IDLE_S
from tuning.controller.resources.placement import Node


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "sweep")


def test_lanes_wait_for_trials_and_are_given_back_after_a_while(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    assert sweep.workers.find_allocation() is None
    sweep.cluster.seconds += IDLE_S
    sweep.end(first)  # after long trials a lane is not idle at once
    sweep.workers.poll()
    assert sweep.lanes.free == 1
    sweep.cluster.seconds += IDLE_S
    sweep.workers.poll()
    assert (sweep.lanes.free, sweep.lanes.busy) == (0, [second.key])


def test_a_smaller_cluster_has_fewer_lanes(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.workers.poll()
    assert sweep.lanes.free == 1
    sweep.cluster.later(1)
    sweep.workers.poll()
    assert sweep.lanes.free == 0
    assert sweep.workers.find_allocation() is None
    sweep.end(job)
    sweep.workers.poll()
    assert sweep.lanes.free == 1
    assert sweep.workers.find_allocation() is not None


def test_a_trial_without_processes_waits_while_others_have_theirs(sweep: Sweep) -> None:
    other, job = sweep.begin(), sweep.begin()
    sweep.lanes.there = 1
    sweep.workers.on_start_failed(job, "timed out")
    sweep.workers.release(job, unusable=False)
    assert sweep.workers.find_allocation() is None
    assert not sweep.run.interrupted
    sweep.end(other)
    assert sweep.begin().key == f"{job.trial_id}.2"


def test_where_no_trial_has_any_the_session_ends(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.lanes.there = 0
    sweep.workers.on_start_failed(job, "timed out")
    assert sweep.run.gave_up
    assert sweep.run.problem == "no trial can start: timed out"


def test_leaks_are_in_the_records(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    sweep.lanes.left = [Leak(first.key, "rank 0: 700 MiB")]
    sweep.workers.poll()  # before the driver has heard of its end
    sweep.end(first)
    sweep.end(second)
    sweep.lanes.left = [Leak(second.key, "rank 1: 800 MiB")]
    sweep.workers.close()
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [r.attempts[0].leak for r in records] == ["rank 0: 700 MiB", "rank 1: 800 MiB"]
    assert all(r.state in (TrialState.COMPLETED, TrialState.STOPPED) for r in records)


def test_a_trial_grows_into_room_that_came_back(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC, scheduler={"name": "none", "max_t": 9})
    sweep.cluster.later(1)
    job = sweep.begin()
    train(sweep.run, job, upto=2)
    sweep.workers.poll()
    assert sweep.workers.answer(job) is Answer.CONTINUE
    sweep.cluster.later(1, 1)
    sweep.workers.poll()
    sweep.cluster.seconds += 30
    sweep.workers.poll()
    assert sweep.workers.answer(job) is Answer.PAUSE
    sweep.run.on_ended(job.trial_id)
    record = sweep.run.records[job.trial_id]
    assert (record.state, record.reason) == (TrialState.PENDING, "goes on with more workers")
    sweep.workers.release(job, unusable=False)

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
    sweep.workers.release(job, unusable=False)
    again = sweep.begin()  # at once, before anybody looked at the cluster again
    assert (again.trial_id, again.workers) == (job.trial_id, 1)


def test_fewer_workers_are_tried_where_so_many_do_not_come_up(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    job = sweep.begin()
    sweep.lanes.there = 0
    sweep.workers.on_start_failed(job, "timed out")
    sweep.workers.release(job, unusable=False)
    again = sweep.begin()
    assert (again.workers, sweep.run.gave_up) == (1, False)
    assert sweep.run.records[job.trial_id].attempts[0].error is None, "not to blame"
    sweep.workers.on_start_failed(again, "timed out")
    assert sweep.run.gave_up


def test_what_waits_for_room_that_is_gone_is_called_back(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    sweep.begin()
    sweep.workers.poll()
    assert not sweep.lanes.recalled
    sweep.cluster.later(1)
    sweep.workers.poll()
    assert sweep.lanes.recalled


def test_who_loses_its_listener_is_tried_again(sweep: Sweep) -> None:
    job = sweep.begin()
    remedy = sweep.workers.on_actor_died(job)
    sweep.workers.release(job, unusable=False)
    assert remedy is Remedy.RETRY
    assert not sweep.workers.broker_lost
    assert sweep.run.records[job.trial_id].attempts[0].cause is Cause.INFRASTRUCTURE
    assert sweep.begin().key == f"{job.trial_id}.2"


def test_what_a_trials_processes_say_counts_where_its_listener_was_killed_for_memory(
    tmp_path: Path,
) -> None:
    sweep = Sweep(tmp_path / "sweep", failure={"on_oom": "fail_trial"})
    killed, alone = sweep.begin(), sweep.begin()
    sweep.lanes.failed = "rank 1: WorkerHealthCheckFailedError: OutOfMemoryError: 2 worker(s)"
    assert sweep.workers.on_actor_died(killed, for_memory=True) is Remedy.FAIL_TRIAL
    assert sweep.run.records[killed.trial_id].attempts[0].error == sweep.lanes.failed
    sweep.lanes.failed = None
    assert sweep.workers.on_actor_died(alone, for_memory=True) is Remedy.RETRY
    assert sweep.run.records[alone.trial_id].attempts[0].cause is Cause.INFRASTRUCTURE


def test_without_a_mailbox_no_trial_begins_and_none_is_charged(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    sweep.lanes.mailbox_died = True
    for job in (first, second):
        assert sweep.workers.on_actor_died(job) is None
    assert sweep.workers.broker_lost
    assert sweep.workers.find_allocation() is None
    assert not sweep.run.interrupted
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [(r.state, r.attempts[0].error) for r in records] == [(TrialState.PENDING, None)] * 2


def test_without_a_mailbox_nobody_knows_what_came_up(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.lanes.there, sweep.lanes.mailbox_died = 0, True
    sweep.workers.on_start_failed(job, "timed out")
    assert sweep.workers.broker_lost
    assert not sweep.run.gave_up
