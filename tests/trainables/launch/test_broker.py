import asyncio

import pytest

from results.records.machines import Machine
from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch.broker import Broker
from trainables.launch.events import (
    Ended,
    Failed,
    LaneAction,
    Leak,
    RankOutcome,
    ReleasedLane,
    Reported,
)

REPORT = Report(step=1, metrics={"loss": 1.0}, attempt=1, time=0.0)


def job(trial_id, attempt=1):
    return TrialJob(
        trial_id=trial_id,
        folder="",
        trainable="digits",
        config={},
        seed=0,
        attempt=attempt,
        checkpoint_every=1,
        cache="",
    )


A, B = job("a"), job("b")


async def forgotten(broker, trial):
    assert await broker.report(trial.key, REPORT) is Answer.STOP
    await blocks(broker.next_event(trial.key))


async def blocks(call):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0.01)


def test_lane_runs_trials_in_order():
    async def scenario():
        broker = Broker()
        answers = []

        async def worker(rank):
            number = 0
            while (mine := await broker.take_job("lane", number)) is not None:
                if rank == 0:
                    answers.append((mine.key, await broker.report(mine.key, REPORT)))
                action = await broker.finish_trial("lane", mine.key, rank, 2, RankOutcome())
                assert action is LaneAction.CONTINUE
                number += 1

        async def driver():
            for trial, answer in ((A, Answer.CONTINUE), (B, Answer.STOP)):
                await broker.submit("lane", trial)
                assert await broker.next_event(trial.key) == Reported(REPORT)
                await broker.answer(trial.key, answer)
                if answer is Answer.CONTINUE:
                    assert await broker.next_event(trial.key) == Ended()
            await broker.submit("lane", None)

        await asyncio.gather(worker(0), worker(1), driver())
        assert answers == [("a.1", Answer.CONTINUE), ("b.1", Answer.STOP)]
        await forgotten(broker, A)
        await forgotten(broker, B)

    asyncio.run(scenario())


def test_report_after_stop_is_answered_stop():
    async def scenario():
        broker = Broker()
        await broker.answer(A.key, Answer.STOP)
        assert await broker.report(A.key, REPORT) is Answer.STOP
        assert await broker.report(A.key, REPORT) is Answer.STOP

    asyncio.run(scenario())


def test_remove_lane_fails_unfinished_trials():
    async def scenario():
        broker = Broker()
        for trial in (job("done"), A, B):
            await broker.submit("lane", trial)
        for number in range(2):
            await broker.take_job("lane", number)
        await broker.finish_trial("lane", "done.1", 0, 1, RankOutcome())
        await broker.remove_lane("lane", "rank 1: killed")
        assert await broker.next_event("done.1") == Ended()
        assert await broker.next_event(A.key) == Failed("rank 1: killed", began=True)
        assert await broker.next_event(B.key) == Failed("rank 1: killed", began=False)
        await broker.submit("lane", B)
        assert await broker.next_event(B.key) == Failed("rank 1: killed", began=False)
        await broker.submit("never up", A)
        await broker.remove_lane("never up", "timed out")
        assert await broker.next_event(A.key) == Failed("timed out", began=False, came_up=False)

    asyncio.run(scenario())


def finish_on_two_ranks(first, second):
    """Finish a trial with the outcomes of two ranks; their actions and the last event."""

    async def scenario():
        broker = Broker(ranks_timeout_s=0.01)
        await broker.submit("lane", A)
        actions = await asyncio.gather(
            *(
                broker.finish_trial("lane", A.key, rank, 2, outcome)
                for rank, outcome in enumerate((first, second))
                if outcome
            )
        )
        event = await broker.next_event(A.key) if first and second else None
        return actions, event

    return asyncio.run(scenario())


def test_finish_trial_renews_group_after_failure():
    actions, event = finish_on_two_ranks(RankOutcome(), RankOutcome("ValueError: bad"))
    assert actions == [LaneAction.RENEW_GROUP] * 2
    assert event == Failed("rank 1: ValueError: bad")


def test_finish_trial_aborts_lane_after_fatal_failure():
    actions, event = finish_on_two_ranks(
        RankOutcome("OutOfMemoryError: x", fatal=True), RankOutcome()
    )
    assert actions == [LaneAction.ABORT] * 2
    assert event == Failed("rank 0: OutOfMemoryError: x")


def test_finish_trial_aborts_lane_when_a_rank_hangs():
    actions, _ = finish_on_two_ranks(RankOutcome("ValueError: bad"), None)
    assert actions == [LaneAction.ABORT]


def test_leak_retires_lane_after_its_trial():
    async def scenario():
        broker = Broker()
        await broker.submit("lane", A)
        await broker.submit("lane", B)
        actions = await asyncio.gather(
            broker.finish_trial("lane", A.key, 0, 2, RankOutcome()),
            broker.finish_trial("lane", A.key, 1, 2, RankOutcome(leak="700 MiB")),
        )
        assert actions == [LaneAction.RETIRE] * 2
        assert await broker.next_event(A.key) == Ended(), "the trial itself is fine"
        left = await broker.remove_lane("lane", "left")
        assert left == ReleasedLane(Leak(A.key, "rank 1: 700 MiB"))
        assert (await broker.next_event(B.key)).began is False, "the driver starts it elsewhere"

    asyncio.run(scenario())


def test_wait_to_start_waits_for_first_report_of_first_lane():
    async def scenario():
        broker = Broker()
        second = asyncio.create_task(broker.wait_to_start("second", after="first"))
        third = asyncio.create_task(broker.wait_to_start("third", after="first"))
        await broker.submit("third", None)
        assert await third is False, "the sweep ends before it began"
        assert await broker.lanes_up() == {}
        await broker.submit("first", A)
        assert await broker.take_job("first", 0) == A
        assert await broker.lanes_up() == {"first": []}
        assert not second.done(), "the first step keeps the cores"
        report = asyncio.create_task(broker.report(A.key, REPORT))
        assert await second is True
        await broker.answer(A.key, Answer.STOP)
        assert await report is Answer.STOP
        await broker.remove_lane("other", "never came up")
        assert await broker.wait_to_start("fourth", after="other") is True

    asyncio.run(scenario())


def test_wait_to_start_does_not_wait_for_long_first_step():
    async def scenario():
        broker = Broker(first_step_s=0.01)
        await broker.submit("first", A)
        await broker.take_job("first", 0)
        assert await broker.wait_to_start("second", after="first") is True

    asyncio.run(scenario())


def test_submit_to_removed_lane_keeps_nothing():
    async def scenario():
        broker = Broker()
        await broker.remove_lane("lane", "gone")
        await broker.submit("lane", None)
        await blocks(broker.take_job("lane", 0))

    asyncio.run(scenario())


def test_cancel_start_fails_trials_of_lane_that_is_not_up():
    async def scenario():
        broker = Broker()
        await broker.submit("lane", A)
        await broker.cancel_start("lane")
        event = await broker.next_event(A.key)
        assert (event.began, event.came_up) == (False, True), "it is tried again"
        assert await broker.take_job("lane", 0) is None, "what comes up late leaves"
        await broker.cancel_start("lane")
        await broker.remove_lane("lane", "left")
        await broker.cancel_start("lane")

    asyncio.run(scenario())


def test_cancel_start_leaves_lane_that_is_up():
    async def scenario():
        broker = Broker()
        await broker.submit("lane", A)
        assert await broker.take_job("lane", 0) is A
        await broker.cancel_start("lane")
        waiting = asyncio.create_task(broker.next_event(A.key))
        await broker.finish_trial("lane", A.key, 0, 1, RankOutcome())
        assert await waiting == Ended()

    asyncio.run(scenario())


ALPHA, BETA = Machine(id="a", name="alpha"), Machine(id="b", name="beta")


def test_failure_names_machine_of_each_rank():
    async def scenario():
        broker = Broker()
        await broker.submit("lane", A)
        await broker.submit("lane", B)
        for rank, machine in enumerate((ALPHA, BETA)):
            await broker.register_lane_worker("lane", rank, machine, None)
        await broker.take_job("lane", 0)
        assert await broker.lanes_up() == {"lane": ["a", "b"]}
        outcomes = RankOutcome(), RankOutcome(failure="RuntimeError: ECC error")
        await asyncio.gather(
            *(broker.finish_trial("lane", A.key, rank, 2, o) for rank, o in enumerate(outcomes))
        )
        event = await broker.next_event(A.key)
        assert (event.reason, event.machines) == (
            "rank 1: RuntimeError: ECC error",
            {0: ALPHA, 1: BETA},
        )
        await broker.remove_lane("lane", "died")
        assert (await broker.next_event(B.key)).machines == {0: ALPHA, 1: BETA}

    asyncio.run(scenario())


def test_failure_of_attempt_without_lane_names_its_machines():
    async def scenario():
        broker = Broker()
        await broker.begin_attempt(A.key)
        await broker.register_worker(A.key, 0, ALPHA, None)
        await broker.post_event(A.key, Failed("RuntimeError: ECC error"))
        assert (await broker.next_event(A.key)).machines == {0: ALPHA}

    asyncio.run(scenario())
