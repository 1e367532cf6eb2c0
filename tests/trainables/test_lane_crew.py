"""Which lane takes the next trial; lanes that only remember stand for real ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainables import lane_crew
from trainables.fit import Shape
from trainables.lane_crew import LaneCrew
from trainables.worker import TrialJob

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

    def __init__(self, shape: Shape, mailbox: Any, max_growth: int, after: Any = None) -> None:
        self.id, self.workers, self.after = f"lane-{id(self)}", shape.workers, after
        self.alive, self.seen_up, self.recalled, self.trials = True, False, False, 0

    def start(self, job: Any) -> None:
        self.trials += 1

    def retire(self) -> None:
        self.alive = False


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two lanes of one worker; `up` has the ids of those that are up."""
    monkeypatch.setattr(lane_crew, "Lane", Remembered)
    monkeypatch.setattr(lane_crew, "_LOOK_S", -math.inf)
    crew: Any = LaneCrew(Shape(1, 1.0, 0.0, 1.0, ""), [1, 1], None, None, 0)
    crew.up_ids = {}
    monkeypatch.setattr(crew, "_lanes_up", lambda: crew.up_ids)
    return crew


def test_the_first_trial_goes_to_the_lane_that_starts_first(crew: Any) -> None:
    assert crew.ready(1)
    crew.start(JOB)
    assert crew._busy[JOB.key].after is None


def test_the_next_one_waits_until_another_lane_is_up(crew: Any) -> None:
    crew.start(JOB)
    assert not crew.ready(1)
    crew.up_ids = {crew._free[0].id: []}
    assert crew.ready(1)


def test_a_lane_that_never_came_up_is_not_waited_for(crew: Any) -> None:
    crew.start(JOB)
    crew._free[0].alive = False
    assert crew.ready(1), "another one is started for it"


def test_a_trial_of_another_size_gets_a_lane_of_its_own(crew: Any) -> None:
    crew.start(JOB)
    assert crew.ready(2)
