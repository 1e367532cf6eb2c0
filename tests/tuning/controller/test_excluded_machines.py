"""Retries exclude the machines on which the trial failed, if there are others."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records.machines import Machine
from results.records.trial import TrialState
from tests.tuning.fake_pool import ELASTIC, Sweep
from trainables.job import TrialJob
from tuning.controller.resources.placement import Node

SICK, WELL = Machine(id="a", name="alpha"), Machine(id="b", name="beta")
ECC = {"on_log": {"ECC error": "retry_elsewhere"}}


@pytest.fixture
def two(tmp_path: Path) -> Sweep:
    """Two machines with room for one trial each."""
    found = Sweep(tmp_path / "sweep", failure=ECC)
    found.cluster.nodes = [Node(1, 0, SICK.id), Node(1, 0, WELL.id)]
    return found


def fail(sweep: Sweep, job: TrialJob, *machines: Machine) -> None:
    at = dict(enumerate(machines))
    sweep.run.on_failed(job.trial_id, "rank 0: RuntimeError: ECC error", machines=at)
    sweep.workers.release(job, unusable=True)


def test_retry_excludes_the_machine_that_failed(two: Sweep) -> None:
    job = two.begin()
    fail(two, job, SICK)
    record = two.run.records[job.trial_id]
    assert (record.state, record.excluded_machines) == (TrialState.PENDING, (SICK,))
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, (SICK.id,))
    attempt = two.run.records[job.trial_id].attempts[-1]
    assert (attempt.kept_off, attempt.where) == ((SICK,), "avoids alpha (a)")


def test_retry_waits_for_another_machine_while_trials_run(two: Sweep) -> None:
    job, other = two.begin(), two.begin()
    two.pool.machine_ids = {other.key: [WELL.id]}
    fail(two, job, SICK)
    third = two.begin()
    assert third.trial_id not in (job.trial_id, other.trial_id), (
        "the excluded machine is used by another trial"
    )
    two.pool.machine_ids[third.key] = [SICK.id]
    two.end(other)
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, (SICK.id,))


def test_retry_waits_while_placements_are_unknown(two: Sweep) -> None:
    job, other = two.begin(), two.begin()
    fail(two, job, SICK)
    assert two.workers.find_allocation([SICK]) is None
    two.end(other)
    assert two.workers.find_allocation([SICK]) is not None


def test_retry_uses_an_excluded_machine_if_there_is_no_other(two: Sweep) -> None:
    job = two.begin()
    fail(two, job, SICK)
    fail(two, two.begin(), WELL)
    again = two.begin()
    attempt = two.run.records[job.trial_id].attempts[-1]
    assert (again.avoid, attempt.in_place) == ((), True)
    assert attempt.where == (
        "no machine other than alpha (a), beta (b) fits, so it runs there again"
    )


def test_machine_that_left_is_not_excluded(two: Sweep) -> None:
    job = two.begin()
    fail(two, job, SICK)
    two.cluster.nodes = [Node(1, 0, WELL.id)]
    two.cluster.seconds += 10
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, ())
    assert not two.run.records[job.trial_id].attempts[-1].where


def test_machine_that_returns_is_excluded_by_its_address(two: Sweep) -> None:
    sick = SICK.model_copy(update={"address": "192.0.2.7"})
    job = two.begin()
    fail(two, job, sick)
    two.cluster.nodes = [Node(1, 0, "c", sick.address), Node(1, 0, WELL.id, "192.0.2.8")]
    two.cluster.seconds += 10
    again = two.begin()
    assert (again.trial_id, again.avoid) == (job.trial_id, ("c",))
    assert two.run.records[job.trial_id].attempts[-1].where == "avoids alpha (c)"


def test_elastic_retry_uses_the_remaining_machines(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path / "sweep", failure=ECC, resources=ELASTIC)
    sweep.cluster.nodes = [Node(1, 0, SICK.id), Node(1, 0, WELL.id)]
    job = sweep.begin()
    assert job.workers == 2
    fail(sweep, job, SICK, WELL)
    again = sweep.begin()
    assert (again.workers, again.avoid) == (1, (SICK.id,)), (
        "rank 0 failed, so only its machine is excluded"
    )


def test_nothing_is_proposed_while_the_budget_waits_in_the_queue(two: Sweep) -> None:
    jobs = [two.begin(), two.begin()]
    fail(two, jobs[0], SICK)
    assert len(two.run.records) == 2
    assert two.run.next_trial(lambda *_: None) is None
    two.end(jobs[1])
    two.cluster.nodes = [Node(1, 0, WELL.id)]
    assert [two.begin().trial_id] == [jobs[0].trial_id]
    two.cluster.later(2)
    assert two.begin().trial_id == "t0002"
