"""What takes the place of Ray Tune's actors, with replies that are given instead of a broker's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from results.records.trial import Report
from tests.tuning.call_costs import Cost, costs
from trainables.job import Answer
from trainables.launch.broker.events import Ended, Event, Failed, Reported
from tuning.controller.ray_tune.listener import (
    EVENT,
    KEY,
    Connection,
    Listener,
    ListeningManager,
)

REPORTED = Reported(Report(step=1, metrics={"loss": 1.0}, attempt=1, time=0.0))


class Replies(Connection):
    """A connection with given replies."""

    def __init__(self) -> None:
        self.replies: list[Sequence[tuple[str, Event]] | None] = []
        self.sent: list[dict[str, Answer]] = []
        self.has_died = False

    def send(self, answers: Mapping[str, Answer]) -> None:
        self.sent.append(dict(answers))

    def receive(self, timeout_s: float) -> Sequence[tuple[str, Event]] | None:
        if self.has_died:
            raise ActorDiedError
        return self.replies.pop(0) if self.replies else None


class Driver:
    """Starts trials, and answers each report, as Ray Tune and the scheduler do."""

    def __init__(self) -> None:
        self.connection, self.answers = Replies(), dict[str, Answer]()
        self.manager = ListeningManager(self.connection, self.answers, self.batch, self.answered)
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.results: list[tuple[str, Any]] = []
        self.errors: list[str] = []
        self.batches = self.sent = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        yield
        self.batches += 1

    def answered(self) -> None:
        assert self.batches == self.sent + 1, "what the batch changes is written before"
        self.sent += 1

    def add(self, key: str) -> Listener:
        def start(listener: Listener) -> None:
            self.started.append(key)
            self.wait(listener)

        return self.manager.add_actor(
            None,
            {"config": {KEY: key}},
            None,
            on_start=start,
            on_stop=lambda listener: self.stopped.append(listener.key),
            on_error=lambda listener, error: None,
        )

    def wait(self, listener: Listener) -> None:
        self.manager.schedule_actor_task(
            listener,
            "train",
            on_result=self.result,
            on_error=lambda listener, error: self.errors.append(listener.key),
        )

    def result(self, listener: Listener, result: Any) -> None:
        self.results.append((listener.key, result))
        if not result["done"]:
            self.answers[listener.key] = Answer.CONTINUE
            self.wait(listener)

    def reply(self, *events: tuple[str, Event]) -> None:
        self.connection.replies.append(events)
        self.manager.next(1.0)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_batch_is_answered_together_after_its_last_event(driver: Driver) -> None:
    for key in ("a", "b", "c"):
        driver.add(key)
    assert driver.manager.next(0.0)
    assert driver.started == ["a", "b", "c"]
    failed = Failed("out of luck")
    driver.reply(("b", REPORTED), ("a", REPORTED), ("c", failed))
    assert driver.results == [
        ("b", {EVENT: REPORTED, "done": False}),
        ("a", {EVENT: REPORTED, "done": False}),
        ("c", {EVENT: failed, "done": True}),
    ]
    assert driver.connection.sent == [{}, {"b": Answer.CONTINUE, "a": Answer.CONTINUE}]
    assert driver.batches == driver.sent == 1
    assert not driver.manager.next(0.0), "nothing happened"
    assert len(driver.connection.sent) == 2, "the call waits"


def test_events_of_an_attempt_that_was_ended_are_dropped(driver: Driver) -> None:
    ended, running = driver.add("ended"), driver.add("running")
    driver.manager.next(0.0)
    driver.manager.clear_actor_task_futures(ended)
    assert driver.manager.remove_actor(ended)
    assert not driver.manager.remove_actor(ended)
    assert driver.manager.is_actor_started(running)
    driver.reply(("ended", Ended()), ("unknown", Ended()), ("running", Ended()))
    assert [key for key, _ in driver.results] == ["running"]
    assert driver.stopped == ["ended"]
    assert driver.manager.num_live_actors == 1


def test_death_of_the_broker_fails_all_that_wait(driver: Driver) -> None:
    for key in ("a", "b"):
        driver.add(key)
    driver.manager.next(0.0)
    driver.connection.has_died = True
    assert driver.manager.next(0.0)
    assert driver.errors == ["a", "b"]


def test_cost_of_a_batch_does_not_grow_with_the_number_of_trials() -> None:
    def cost_of_a_batch(trials: int) -> Cost:
        driver = Driver()
        for number in range(trials):
            driver.add(f"{number}")
        driver.manager.next(0.0)
        with costs() as cost:
            driver.reply(("0", REPORTED), ("1", REPORTED))
        assert len(driver.results) == 2
        return cost

    assert cost_of_a_batch(1000).calls == cost_of_a_batch(2).calls
