"""The trials that run and those that wait."""

from __future__ import annotations

from collections import deque

from tuning.controller.trial_table import TrialQueue


def test_trial_whose_attempt_ended_waits_before_the_others() -> None:
    queue = TrialQueue(waiting=deque(["t0001"]), running={"t0000"})
    queue.requeue("t0000")
    assert [*queue.waiting] == ["t0000", "t0001"]
    assert not queue.running


def test_queue_is_idle_without_one_trial() -> None:
    queue = TrialQueue(running={"t0000"})
    assert not queue.is_idle()
    assert queue.is_idle(without="t0000")
    queue.waiting.append("t0001")
    assert not queue.is_idle(without="t0000")


def test_next_attempt_ends_a_request_to_move() -> None:
    queue = TrialQueue(running={"t0000"}, moving={"t0000"})
    queue.start("t0000")
    assert not queue.moving
