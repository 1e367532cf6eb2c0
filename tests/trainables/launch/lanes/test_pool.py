"""Lanes without processes record which trials a pool gives them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainables.local import make_job
from trainables.launch.broker.events import Leak
from trainables.launch.lanes import pool as lane_pool
from trainables.launch.lanes.pool import LanePool
from trainables.launch.ray_train import WorkerGroupSpec

JOB = make_job(Path("a"))


class RecordedLane:
    """A lane without processes."""

    made: list[RecordedLane]

    def __init__(
        self, spec: WorkerGroupSpec, broker: Any, max_growth: int, after: Any = None
    ) -> None:
        self.id, self.workers, self.after = f"lane-{id(self)}", spec.workers, after
        self.gpus_per_worker = spec.gpus_per_worker
        self.is_alive, self.is_cancelled, self.num_trials = True, False, 0
        self.is_killed = False
        self.leak: Leak | None = None
        self.made.append(self)

    def start(self, job: Any) -> None:
        self.num_trials += 1

    def retire(self) -> None:
        self.is_alive = False

    def join(self, wait_s: float) -> None: ...

    def kill(self) -> None:
        self.is_alive, self.is_killed = False, True


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> list[RecordedLane]:
    """All lanes that the pool makes, in order."""
    monkeypatch.setattr(lane_pool, "Lane", RecordedLane)
    monkeypatch.setattr(RecordedLane, "made", [], raising=False)
    return RecordedLane.made


@pytest.fixture
def pool(lanes: list[RecordedLane]) -> LanePool:
    """Two lanes of one worker."""
    method = SimpleNamespace(remote=lambda *_: None)
    broker: Any = SimpleNamespace(answer=method, forget_attempts=method)
    return LanePool(WorkerGroupSpec(1, 1.0, 0.0, 1.0, ""), [1, 1], broker, None, 0)


def test_first_trial_goes_to_the_lane_that_starts_first(
    pool: LanePool, lanes: list[RecordedLane]
) -> None:
    pool.start(JOB)
    assert [(lane.after, lane.num_trials) for lane in lanes] == [(None, 1), (lanes[0], 0)]


def test_lane_released_last_is_used_first(pool: LanePool, lanes: list[RecordedLane]) -> None:
    pool.start(JOB)
    pool.release(JOB.key)
    pool.start(JOB)
    assert [lane.num_trials for lane in lanes] == [2, 0]


def test_lane_whose_trial_does_not_end_is_killed(
    pool: LanePool, lanes: list[RecordedLane], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.start(JOB)
    monkeypatch.setattr(lanes[0], "retire", lambda: None)  # it is within a long step
    pool.close()
    assert [lane.is_killed for lane in lanes] == [True, False]


def test_lanes_with_another_part_of_a_gpu_end(pool: LanePool, lanes: list[RecordedLane]) -> None:
    pool.start(JOB)
    pool.use_gpus(0.5)
    assert [lane.is_alive for lane in lanes] == [True, False], "the busy one goes on"
    pool.start(other := replace(JOB, attempt=2))
    pool.release(JOB.key)
    pool.release(other.key)
    assert [lane.gpus_per_worker for lane in lanes if lane.is_alive] == [0.5]
    pool.use_gpus(0.5)
    assert [lane.is_alive for lane in lanes] == [False, False, True]


def test_trial_of_another_size_gets_a_new_lane(pool: LanePool, lanes: list[RecordedLane]) -> None:
    pool.start(replace(JOB, workers=2))
    assert [lane.workers for lane in lanes if lane.is_alive] == [2]
    assert len(lanes) == 3


@pytest.mark.parametrize("settled", [True, False])
def test_idle_lanes_are_handed_over_once_their_trials_have_ended(
    pool: LanePool, lanes: list[RecordedLane], monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    monkeypatch.setattr(lane_pool, "get_or", lambda default, answer: settled)
    pool.start(JOB)
    assert not pool.hand_over()  # a trial runs
    pool.release(JOB.key)
    assert pool.hand_over() is settled
    pool.retire_idle(keep=0)
    assert not pool.hand_over()  # no lane is left


@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_unknown_code_that_leaks_gets_new_processes_from_then_on(
    is_fresh: bool, is_known: bool, lanes: list[RecordedLane]
) -> None:
    method = SimpleNamespace(remote=lambda *_: None)
    broker: Any = SimpleNamespace(answer=method, forget_attempts=method)
    spec = WorkerGroupSpec(1, 1.0, 0.0, 1.0, "")
    pool = LanePool(spec, [1, 1], broker, None, 0, is_known=is_known)
    pool.start(JOB)
    lanes[0].leak = Leak(JOB.key, "left behind: thread x", is_certain=is_fresh)
    lanes[0].retire()
    pool.release(JOB.key)
    said = [leak.message for leak in pool.take_leaks()]
    assert ("new processes" in said[0]) is (is_fresh and not is_known)
    for _ in range(2):
        pool.start(JOB)
        pool.release(JOB.key)
    assert lanes[1].is_alive is not (is_fresh and not is_known)
