"""The mailbox, as its actor runs it: one event loop, many waiting callers."""

import asyncio

from results.records.machines import Machine
from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch import broker
from trainables.launch.broker import Broker
from trainables.launch.events import Ended, Failed, Reported
from trainables.launch.trial_outcome import Leak, Next, Outcome, ReleasedLane

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


def test_trials_go_through_a_lane_one_after_another():
    async def scenario():
        box = Broker()
        heard = []

        async def worker(rank):
            number = 0
            while (mine := await box.job("lane", number)) is not None:
                if rank == 0:
                    heard.append((mine.key, await box.report(mine.key, REPORT)))
                assert await box.settle("lane", mine.key, rank, 2, Outcome()) is Next.GO_ON
                number += 1

        async def driver():
            for trial, answer in ((A, Answer.CONTINUE), (B, Answer.STOP)):
                await box.submit("lane", trial)
                assert await box.event(trial.key) == Reported(REPORT)
                await box.answer(trial.key, answer)
                if answer is Answer.CONTINUE:
                    assert await box.event(trial.key) == Ended()
            await box.submit("lane", None)

        await asyncio.gather(worker(0), worker(1), driver())
        assert heard == [("a.1", Answer.CONTINUE), ("b.1", Answer.STOP)]
        assert not box._talks, "nothing is kept of what is over"

    asyncio.run(scenario())


def test_a_stopped_trial_is_told_at_its_next_report():
    async def scenario():
        box = Broker()
        await box.answer(A.key, Answer.STOP)
        assert await box.report(A.key, REPORT) is Answer.STOP
        assert await box.report(A.key, REPORT) is Answer.STOP

    asyncio.run(scenario())


def test_a_lane_that_goes_takes_only_the_trial_that_had_begun():
    async def scenario():
        box = Broker()
        for trial in (job("done"), A, B):
            await box.submit("lane", trial)
        for number in range(2):
            await box.job("lane", number)
        await box.settle("lane", "done.1", 0, 1, Outcome())
        await box.lane_gone("lane", "rank 1: killed")
        assert await box.event("done.1") == Ended()
        assert await box.event(A.key) == Failed("rank 1: killed", began=True)
        assert await box.event(B.key) == Failed("rank 1: killed", began=False)
        await box.submit("lane", B)
        assert await box.event(B.key) == Failed("rank 1: killed", began=False)
        await box.submit("never up", A)
        await box.lane_gone("never up", "timed out")
        assert await box.event(A.key) == Failed("timed out", began=False, came_up=False)

    asyncio.run(scenario())


def settle_both(first, second):
    """Outcomes of two ranks; gives what each is told, and the trial's last event."""

    async def scenario():
        box = Broker()
        await box.submit("lane", A)
        told = await asyncio.gather(
            *(
                box.settle("lane", A.key, rank, 2, outcome)
                for rank, outcome in enumerate((first, second))
                if outcome
            )
        )
        event = await box.event(A.key) if first and second else None
        return told, event

    return asyncio.run(scenario())


def test_a_failure_of_a_trial_leaves_its_lane_whole():
    told, event = settle_both(Outcome(), Outcome("ValueError: bad"))
    assert told == [Next.RENEW] * 2
    assert event == Failed("rank 1: ValueError: bad")


def test_what_ruins_a_process_ends_the_lane_on_all_ranks():
    told, event = settle_both(Outcome("OutOfMemoryError: x", fatal=True), Outcome())
    assert told == [Next.LEAVE] * 2
    assert event == Failed("rank 0: OutOfMemoryError: x")


def test_a_rank_that_waits_for_ever_ends_the_lane(monkeypatch):
    monkeypatch.setattr(broker, "_SETTLE_S", 0.01)
    told, _ = settle_both(Outcome("ValueError: bad"), None)
    assert told == [Next.LEAVE]


def test_a_leak_ends_the_lane_after_its_trial_and_is_told():
    async def scenario():
        box = Broker()
        await box.submit("lane", A)
        await box.submit("lane", B)
        told = await asyncio.gather(
            box.settle("lane", A.key, 0, 2, Outcome()),
            box.settle("lane", A.key, 1, 2, Outcome(leak="700 MiB")),
        )
        assert told == [Next.RETIRE] * 2
        assert await box.event(A.key) == Ended(), "the trial itself is fine"
        left = await box.lane_gone("lane", "left")
        assert left == ReleasedLane(Leak(A.key, "rank 1: 700 MiB"))
        assert (await box.event(B.key)).began is False, "what came too late goes elsewhere"

    asyncio.run(scenario())


def test_lanes_come_up_one_after_the_first():
    async def scenario():
        box = Broker()
        second = asyncio.create_task(box.may_start("second", after="first"))
        third = asyncio.create_task(box.may_start("third", after="first"))
        await box.submit("third", None)
        assert await third is False, "the sweep ends before it began"
        assert await box.lanes_up() == {}
        await box.submit("first", A)
        assert await box.job("first", 0) == A
        assert await box.lanes_up() == {"first": []}
        assert not second.done(), "the first step has the cores"
        report = asyncio.create_task(box.report(A.key, REPORT))
        assert await second is True
        await box.answer(A.key, Answer.STOP)
        assert await report is Answer.STOP
        await box.lane_gone("other", "never came up")
        assert await box.may_start("fourth", after="other") is True

    asyncio.run(scenario())


def test_a_long_first_step_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(broker, "_FIRST_STEP_S", 0.01)

    async def scenario():
        box = Broker()
        await box.submit("first", A)
        await box.job("first", 0)
        assert await box.may_start("second", after="first") is True

    asyncio.run(scenario())


def test_nothing_is_kept_for_a_lane_that_has_gone():
    async def scenario():
        box = Broker()
        await box.lane_gone("lane", "gone")
        await box.submit("lane", None)
        assert not box._lanes

    asyncio.run(scenario())


def test_a_lane_that_is_not_up_is_called_back():
    async def scenario():
        box = Broker()
        await box.submit("lane", A)
        await box.recall("lane")
        said = await box.event(A.key)
        assert (said.began, said.came_up) == (False, True), "it is tried again"
        assert await box.job("lane", 0) is None, "what comes up late leaves"
        await box.recall("lane")
        await box.lane_gone("lane", "left")
        await box.recall("lane")

    asyncio.run(scenario())


def test_a_lane_that_is_up_is_left_alone():
    async def scenario():
        box = Broker()
        await box.submit("lane", A)
        assert await box.job("lane", 0) is A
        await box.recall("lane")
        waiting = asyncio.create_task(box.event(A.key))
        await box.settle("lane", A.key, 0, 1, Outcome())
        assert await waiting == Ended()

    asyncio.run(scenario())


ALPHA, BETA = Machine(id="a", name="alpha"), Machine(id="b", name="beta")


def test_who_failed_is_told_with_the_machine_of_each_rank():
    async def scenario():
        box = Broker()
        await box.submit("lane", A)
        await box.submit("lane", B)
        for rank, machine in enumerate((ALPHA, BETA)):
            await box.hold_lane("lane", rank, machine, None)
        await box.job("lane", 0)
        assert await box.lanes_up() == {"lane": ["a", "b"]}
        outcomes = Outcome(), Outcome(failure="RuntimeError: ECC error")
        await asyncio.gather(*(box.settle("lane", A.key, r, 2, o) for r, o in enumerate(outcomes)))
        said = await box.event(A.key)
        assert (said.reason, said.machines) == (
            "rank 1: RuntimeError: ECC error",
            {0: ALPHA, 1: BETA},
        )
        await box.lane_gone("lane", "died")
        assert (await box.event(B.key)).machines == {0: ALPHA, 1: BETA}

    asyncio.run(scenario())


def test_a_loop_that_failed_is_told_with_its_machines():
    async def scenario():
        box = Broker()
        await box.begin(A.key)
        await box.hold(A.key, 0, ALPHA, None)
        await box.post(A.key, Failed("RuntimeError: ECC error"))
        assert (await box.event(A.key)).machines == {0: ALPHA}

    asyncio.run(scenario())
