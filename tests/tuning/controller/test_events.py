"""Observers are told in order, and interrupts reach a session that starts later."""

from __future__ import annotations

import pytest

from results.tracking import Ending
from tuning.controller.events import Interrupt, Observers, SweepEvents


class Recorder(SweepEvents):
    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name, self.log, self.error = name, log, error

    def message(self, text: str) -> None:
        self.log.append(f"{self.name} {text}")

    def session_ended(self, ending: Ending | None) -> None:
        self.log.append(f"{self.name} ended")
        if self.error:
            raise self.error


def test_observers_are_told_in_order_and_end_in_reverse_order() -> None:
    log = list[str]()
    observers = Observers([Recorder("first", log)])
    observers.add(Recorder("second", log))
    observers.message("hello")
    observers.session_ended(None)
    assert log == ["first hello", "second hello", "second ended", "first ended"]


def test_every_observer_ends_even_if_another_raises() -> None:
    log = list[str]()
    observers = Observers([Recorder("first", log), Recorder("second", log, OSError("full"))])
    with pytest.raises(OSError, match="full"):
        observers.session_ended(Ending("FINISHED", {}))
    assert log == ["second ended", "first ended"]


def test_interrupt_reaches_a_session_that_starts_later() -> None:
    stopped = list[str]()
    interrupt = Interrupt()
    interrupt()
    with interrupt as stop:
        stop.watch(lambda: stopped.append("now"))
    assert interrupt.requested
    assert stopped == ["now"]
    interrupt()
    assert stopped == ["now", "now"]
