"""Which trials run and wait, without a sweep."""

from __future__ import annotations

from tuning.controller.trial_queue import TrialQueue


def test_requeued_trial_waits_before_others() -> None:
    queue = TrialQueue()
    queue.append("t0001")
    queue.start("t0000")
    queue.requeue("t0000")
    assert queue.waiting == ("t0000", "t0001")
    assert not queue.has_running


def test_queue_is_idle_without_the_trial_that_pauses() -> None:
    queue = TrialQueue()
    queue.start("t0000")
    assert not queue.is_idle()
    assert queue.is_idle(without="t0000")
    queue.append("t0001")
    assert not queue.is_idle(without="t0000")


def test_start_of_an_attempt_ends_a_move() -> None:
    queue = TrialQueue()
    queue.start("t0000")
    queue.request_move("t0000")
    assert queue.is_moving("t0000")
    queue.requeue("t0000")
    queue.start("t0000")
    assert not queue.is_moving("t0000")


def test_stop_all_includes_later_trials() -> None:
    queue = TrialQueue()
    queue.request_stop({"t0000"})
    assert [queue.is_stop_requested(t) for t in ("t0000", "t0001")] == [True, False]
    queue.stop_all()
    assert queue.stopped
    assert queue.is_stop_requested("t0001")
