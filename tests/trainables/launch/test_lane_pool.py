"""Which lane takes the next trial; lanes that only remember stand for real ones."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from trainables.job import TrialJob
from trainables.launch import lane_pool
from trainables.launch.lane_pool import LanePool
from trainables.launch.ray_train import Shape

JOB = TrialJob(
    trial_id="a",
    folder="",
    trainable="digits",
    config={},
    seed=0,
    attempt=1,
    checkpoint_every=1,
    cache="",
)


class Remembered:
    """A lane without processes."""

    def __init__(self, shape: Shape, broker: Any, max_growth: int, after: Any = None) -> None:
        self.id, self.workers, self.after = f"lane-{id(self)}", shape.workers, after
        self.alive, self.recalled, self.trials = True, False, 0

    def start(self, job: Any) -> None:
        self.trials += 1

    def retire(self) -> None:
        self.alive = False


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two lanes of one worker."""
    monkeypatch.setattr(lane_pool, "Lane", Remembered)
    broker: Any = SimpleNamespace(answer=SimpleNamespace(remote=lambda *_: None))
    return LanePool(Shape(1, 1.0, 0.0, 1.0, ""), [1, 1], broker, None, 0)


def test_the_first_trial_goes_to_the_lane_that_starts_first(crew: Any) -> None:
    crew.start(JOB)
    assert crew._busy[JOB.key].after is None


def test_the_lane_that_was_released_last_comes_first(crew: Any) -> None:
    crew.start(JOB)
    first, other = crew._busy[JOB.key], crew._free[0]
    crew.release(JOB.key)
    crew.start(JOB)
    assert (first.trials, other.trials) == (2, 0)


def test_a_trial_of_another_size_gets_a_lane_of_its_own(crew: Any) -> None:
    crew.start(replace(JOB, workers=2))
    assert crew._busy[JOB.key].workers == 2
    assert crew._free == []
