"""The events of all attempts reach the driver together, and none is lost with a reply."""

from __future__ import annotations

import asyncio

import pytest

from results.records.trial import Report
from tests.trainables.launch.broker.async_test import async_test
from trainables.job import Answer
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Ended, Failed, Reported
from trainables.launch.broker.state import MOST_EVENTS


def report(step: int) -> Report:
    return Report(step=step, metrics={"loss": 1.0}, attempt=1, time=0.0)


async def begun(*keys: str) -> Broker:
    broker = Broker()
    for key in keys:
        await broker.begin_attempt(key)
    return broker


@async_test
async def test_exchange_returns_events_of_all_attempts_in_order() -> None:
    broker = await begun("a", "b", "c")
    reporting = asyncio.create_task(broker.report("b", report(1)))
    await asyncio.sleep(0)
    await broker.post_event("a", Ended())
    await broker.post_event("c", Failed("killed"))
    events = [("b", Reported(report(1))), ("a", Ended()), ("c", Failed("killed"))]
    assert await broker.exchange("1", {}) == events
    waiting = asyncio.create_task(broker.exchange("2", {"b": Answer.CONTINUE}))
    assert await reporting is Answer.CONTINUE
    await broker.post_event("b", Ended())
    assert await waiting == [("b", Ended())]


@async_test
async def test_repeated_call_gets_the_same_reply_and_answers_nothing_twice() -> None:
    broker = await begun("a")
    first = asyncio.create_task(broker.report("a", report(1)))
    events = await broker.exchange("1", {})
    assert await broker.exchange("1", {}) == events == [("a", Reported(report(1)))]
    answered = {"a": Answer.CONTINUE}
    lost = asyncio.create_task(broker.exchange("2", answered))
    assert await first is Answer.CONTINUE
    second = asyncio.create_task(broker.report("a", report(2)))
    assert await broker.exchange("2", answered) == await lost == [("a", Reported(report(2)))]
    assert not second.done(), "the answer was to the first report"
    await broker.answer("a", Answer.PAUSE)
    assert await second is Answer.PAUSE


@async_test
async def test_call_of_a_driver_that_is_gone_takes_no_event() -> None:
    broker = await begun("a")
    gone = asyncio.create_task(broker.exchange("1", {}))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(broker.exchange("2", {}))
    await asyncio.sleep(0)
    await broker.post_event("a", Ended())
    assert (*await gone, *await waiting) == (("a", Ended()),)
    assert waiting.result()


@async_test
async def test_stopped_attempt_has_no_more_events() -> None:
    broker = await begun("a", "b")
    reporting = asyncio.create_task(broker.report("a", report(1)))
    await asyncio.sleep(0)
    await broker.answer("a", Answer.STOP)
    assert await reporting is Answer.STOP
    await broker.post_event("a", Ended())
    await broker.post_event("b", Ended())
    assert await broker.exchange("1", {}) == [("b", Ended())]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(broker.exchange("2", {}), 0.01)


@async_test
async def test_reply_has_a_bounded_number_of_events() -> None:
    keys = [str(number) for number in range(MOST_EVENTS + 1)]
    broker = await begun(*keys)
    for key in keys:
        await broker.post_event(key, Ended())
    first, second = await broker.exchange("1", {}), await broker.exchange("2", {})
    assert [key for key, _ in (*first, *second)] == keys
    assert len(first) == MOST_EVENTS
