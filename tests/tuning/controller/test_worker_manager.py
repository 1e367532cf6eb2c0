"""Lanes follow the trials and the cluster; trials whose workers or broker died are retried."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records.failures import Cause, Remedy
from results.records.trial import TrialState
from tests.tuning.fake_pool import ELASTIC, Sweep
from tests.tuning.simulate import train
from trainables.job import Answer
from trainables.launch.broker.events import Leak
from tuning.controller.events import SweepEvents
from tuning.controller.resources.capacity import IDLE_S, PATIENCE_S
from tuning.controller.resources.placement import Node


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path / "sweep")


def test_idle_lanes_are_retired_after_a_while(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    assert sweep.workers.find_allocation() is None
    sweep.cluster.seconds += IDLE_S
    sweep.end(first)  # a lane is not idle right after a trial
    sweep.workers.poll()
    assert sweep.pool.free == 1
    sweep.cluster.seconds += IDLE_S
    sweep.workers.poll()
    assert (sweep.pool.free, sweep.pool.busy) == (0, [second.key])


def test_smaller_cluster_has_fewer_lanes(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.workers.poll()
    assert sweep.pool.free == 1
    sweep.cluster.later(1)
    sweep.workers.poll()
    assert sweep.pool.free == 0
    assert sweep.workers.find_allocation() is None
    sweep.end(job)
    sweep.workers.poll()
    assert sweep.pool.free == 1
    assert sweep.workers.find_allocation() is not None


def test_failed_start_waits_while_other_trials_run(sweep: Sweep) -> None:
    other, job = sweep.begin(), sweep.begin()
    sweep.pool.up = 1
    sweep.workers.on_start_failed(job, "timed out")
    sweep.workers.release(job, unusable=False)
    assert sweep.workers.find_allocation() is None
    assert not sweep.run.interrupted
    sweep.end(other)
    assert sweep.begin().key == f"{job.trial_id}.2"


def test_failed_start_without_other_workers_ends_the_session(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.pool.up = 0
    sweep.workers.on_start_failed(job, "timed out")
    assert sweep.run.gave_up
    assert sweep.run.problem == "no trial can start: timed out"


def test_leaks_are_recorded(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    sweep.pool.unread_leaks = [Leak(first.key, "rank 0: 700 MiB")]
    sweep.workers.poll()
    sweep.end(first)
    sweep.end(second)
    sweep.pool.unread_leaks = [Leak(second.key, "rank 1: 800 MiB")]
    sweep.workers.close()
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [r.attempts[0].leak for r in records] == ["rank 0: 700 MiB", "rank 1: 800 MiB"]
    assert all(r.state in (TrialState.COMPLETED, TrialState.STOPPED) for r in records)


def test_elastic_trial_grows_into_free_slots(tmp_path: Path) -> None:
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
    assert (record.state, record.reason) == (TrialState.PENDING, "continues with more workers")
    sweep.workers.release(job, unusable=False)

    again = sweep.begin()
    assert (again.key, again.workers) == (f"{job.trial_id}.2", 2)
    sweep.end(again)
    record = sweep.run.records[job.trial_id]
    assert record.state is TrialState.COMPLETED
    assert [(a.workers, a.cpus, a.error) for a in record.attempts] == [(1, 1, None), (2, 2, None)]


def test_elastic_trial_shrinks_when_workers_are_lost(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    job = sweep.begin()
    assert job.workers == 2
    train(sweep.run, job, upto=1)
    sweep.cluster.nodes = [Node(1, 0)]
    sweep.run.on_failed(job.trial_id, "rank 1: ActorDiedError: its node has died")
    sweep.workers.release(job, unusable=False)
    again = sweep.begin()  # before the cluster is read again
    assert (again.trial_id, again.workers) == (job.trial_id, 1)


def test_failed_start_is_retried_with_fewer_workers(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    job = sweep.begin()
    sweep.pool.up = 0
    sweep.workers.on_start_failed(job, "timed out")
    sweep.workers.release(job, unusable=False)
    again = sweep.begin()
    assert (again.workers, sweep.run.gave_up) == (1, False)
    assert sweep.run.records[job.trial_id].attempts[0].error is None
    sweep.workers.on_start_failed(again, "timed out")
    assert sweep.run.gave_up


def test_starts_without_room_are_cancelled(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources=ELASTIC)
    sweep.begin()
    sweep.workers.poll()
    assert not sweep.pool.cancelled
    sweep.cluster.later(1)
    sweep.workers.poll()
    assert sweep.pool.cancelled


def test_trial_is_retried_when_the_broker_fails_without_dying(sweep: Sweep) -> None:
    job = sweep.begin()
    remedy = sweep.workers.on_broker_failed(job)
    sweep.workers.release(job, unusable=False)
    assert remedy is Remedy.RETRY
    assert not sweep.workers.broker_lost
    assert sweep.run.records[job.trial_id].attempts[0].cause is Cause.INFRASTRUCTURE
    assert sweep.begin().key == f"{job.trial_id}.2"


def test_lost_broker_starts_and_charges_no_trial(sweep: Sweep) -> None:
    first, second = sweep.begin(), sweep.begin()
    sweep.pool.broker_died = True
    for job in (first, second):
        assert sweep.workers.on_broker_failed(job) is None
    assert sweep.workers.broker_lost
    assert sweep.workers.find_allocation() is None
    assert not sweep.run.interrupted
    records = [sweep.run.records[job.trial_id] for job in (first, second)]
    assert [(r.state, r.attempts[0].error) for r in records] == [(TrialState.PENDING, None)] * 2


def test_failed_start_notices_a_lost_broker(sweep: Sweep) -> None:
    job = sweep.begin()
    sweep.pool.up, sweep.pool.broker_died = 0, True
    sweep.workers.on_start_failed(job, "timed out")
    assert sweep.workers.broker_lost
    assert not sweep.run.gave_up


class Messages(SweepEvents):
    """Keeps what the session says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def test_attempt_that_waits_for_a_machine_says_for_what(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", resources={"workers": 2})
    messages = Messages()
    sweep.run.observers.add(messages)
    job = sweep.begin()
    sweep.workers.poll()
    assert messages.said == []
    sweep.cluster.later(1)
    sweep.cluster.seconds += PATIENCE_S
    sweep.workers.poll()
    sweep.workers.poll()  # says it once
    needs = "t0000 waits for a machine: it needs 2 CPUs (2 x 1 CPU)"
    assert messages.said == [f"{needs}, but the cluster has 1 CPU on 1 machine"]
    sweep.cluster.later(2)
    sweep.workers.poll()
    assert "waits for its workers to start" in messages.said[-1]
    sweep.pool.machine_ids = {job.key: ["n0", "n1"]}
    sweep.cluster.seconds += PATIENCE_S
    sweep.workers.poll()
    waited = sweep.cluster.seconds
    assert messages.said[2:] == [f"t0000 has its workers after {waited:.0f} s"]
