import asyncio
from pathlib import Path

import pytest

from results.records.machines import Machine
from results.records.trial import Report
from tests.trainables.launch.broker.async_test import async_test
from tests.trainables.local import make_job
from trainables.job import Answer
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Ended, Failed, LaneAction, Leak, RankOutcome, Reported

REPORT = Report(step=1, metrics={"loss": 1.0}, attempt=1, time=0.0)
DIVERGED = '{"step":1,"metrics":{"loss":NaN},"attempt":1,"time":0.0}'
A, B, C = (make_job(Path(name)) for name in "abc")
ALPHA, BETA = Machine(id="a", name="alpha"), Machine(id="b", name="beta")


@pytest.fixture
def broker():
    return Broker(ranks_timeout_s=0.01)


async def forgotten(broker, trial):
    assert await broker.report(trial.key, REPORT) is Answer.STOP
    await blocks(broker.next_event(trial.key))


async def blocks(call):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0.01)


@async_test
async def test_lane_runs_trials_in_order(broker):
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


@async_test
async def test_a_lane_that_is_handed_over_takes_trials_of_the_same_keys(broker):
    await broker.submit("lane", A)
    await broker.take_job("lane", 0)
    assert not await broker.forget_attempts(0.0)  # it still runs
    for number in (0, 1):
        assert await broker.take_job("lane", number) is A
        await broker.finish_trial("lane", A.key, 0, 1, RankOutcome())
        assert await broker.next_event(A.key) == Ended()
        assert await broker.forget_attempts(0.0)
        await broker.submit("lane", A)
    await broker.remove_lane("lane", "killed")
    assert (await broker.next_event(A.key)).reason == "killed"  # once: of the last one
    await blocks(broker.next_event(A.key))


@async_test
async def test_report_after_stop_is_answered_stop(broker):
    await broker.answer(A.key, Answer.STOP)
    assert await broker.report(A.key, REPORT) is Answer.STOP
    assert await broker.report(A.key, REPORT) is Answer.STOP


@async_test
async def test_remove_lane_fails_unfinished_trials(broker):
    for trial in (C, A, B):
        await broker.submit("lane", trial)
    for number in range(2):
        await broker.take_job("lane", number)
    await broker.finish_trial("lane", C.key, 0, 1, RankOutcome())
    await broker.remove_lane("lane", "rank 1: killed")
    assert await broker.next_event(C.key) == Ended()
    assert await broker.next_event(A.key) == Failed("rank 1: killed", began=True)
    assert await broker.next_event(B.key) == Failed("rank 1: killed", began=False)
    await broker.submit("lane", B)
    assert await broker.next_event(B.key) == Failed("rank 1: killed", began=False)
    await broker.submit("never up", A)
    await broker.remove_lane("never up", "timed out")
    assert await broker.next_event(A.key) == Failed("timed out", began=False, came_up=False)


async def finish(broker, *outcomes):
    """The actions of two ranks that finish a trial with these outcomes."""
    ranks = (broker.finish_trial("lane", A.key, rank, 2, o) for rank, o in enumerate(outcomes))
    return await asyncio.gather(*ranks)


@pytest.mark.parametrize(
    ("fatal", "action"), [(False, LaneAction.RENEW_GROUP), (True, LaneAction.ABORT)]
)
@async_test
async def test_action_of_a_lane_after_a_failure(broker, fatal, action):
    await broker.submit("lane", A)
    failed = RankOutcome("ValueError: bad", fatal=fatal)
    assert await finish(broker, RankOutcome(), failed) == [action] * 2
    assert await broker.next_event(A.key) == Failed("rank 1: ValueError: bad")


@async_test
async def test_finish_trial_aborts_lane_when_a_rank_hangs(broker):
    await broker.submit("lane", A)
    assert await finish(broker, RankOutcome("ValueError: bad")) == [LaneAction.ABORT]


@async_test
async def test_leak_retires_lane_after_its_trial(broker):
    await broker.submit("lane", A)
    await broker.submit("lane", B)
    actions = await finish(broker, RankOutcome(), RankOutcome(leak="700 MiB"))
    assert actions == [LaneAction.RETIRE] * 2
    assert await broker.next_event(A.key) == Ended(), "the trial itself is fine"
    leak, _ = await broker.remove_lane("lane", "left")
    assert leak == Leak(A.key, "rank 1: 700 MiB")
    assert (await broker.next_event(B.key)).began is False, "the driver starts it elsewhere"


@async_test
async def test_wait_to_start_waits_for_first_report_of_first_lane(broker):
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


@async_test
async def test_wait_to_start_does_not_wait_for_long_first_step():
    broker = Broker(first_step_s=0.01)
    await broker.submit("first", A)
    await broker.take_job("first", 0)
    assert await broker.wait_to_start("second", after="first") is True


@async_test
async def test_submit_to_removed_lane_keeps_nothing(broker):
    await broker.remove_lane("lane", "gone")
    await broker.submit("lane", None)
    await blocks(broker.take_job("lane", 0))


@async_test
async def test_cancel_start_fails_trials_of_lane_that_is_not_up(broker):
    await broker.submit("lane", A)
    await broker.cancel_start("lane")
    event = await broker.next_event(A.key)
    assert (event.began, event.came_up) == (False, True), "it is tried again"
    assert await broker.take_job("lane", 0) is None, "what comes up late leaves"
    await broker.cancel_start("lane")
    await broker.remove_lane("lane", "left")
    await broker.cancel_start("lane")


@async_test
async def test_cancel_start_leaves_lane_that_is_up(broker):
    await broker.submit("lane", A)
    assert await broker.take_job("lane", 0) is A
    await broker.cancel_start("lane")
    waiting = asyncio.create_task(broker.next_event(A.key))
    await broker.finish_trial("lane", A.key, 0, 1, RankOutcome())
    assert await waiting == Ended()


@async_test
async def test_failure_names_machine_of_each_rank(broker):
    await broker.submit("lane", A)
    await broker.submit("lane", B)
    for rank, machine in enumerate((ALPHA, BETA)):
        await broker.register_lane_worker("lane", rank, machine, None)
    await broker.take_job("lane", 0)
    assert await broker.lanes_up() == {"lane": ["a", "b"]}
    await finish(broker, RankOutcome(), RankOutcome(failure="RuntimeError: ECC error"))
    machines = {0: ALPHA, 1: BETA}
    expected = Failed("rank 1: RuntimeError: ECC error", machines=machines)
    assert await broker.next_event(A.key) == expected
    await broker.remove_lane("lane", "died")
    assert (await broker.next_event(B.key)).machines == machines


@async_test
async def test_failure_of_attempt_without_lane_names_its_machines(broker):
    await broker.begin_attempt(A.key)
    await broker.register_worker(A.key, 0, ALPHA, None)
    await broker.post_event(A.key, Failed("RuntimeError: ECC error"))
    assert (await broker.next_event(A.key)).machines == {0: ALPHA}


@async_test
async def test_events_carry_how_long_the_attempt_waited(broker):
    await broker.submit("lane", A)
    await asyncio.sleep(0.05)
    await broker.take_job("lane", 0)
    await asyncio.sleep(0.05)
    await broker.take_job("lane", 0)  # rank 1
    answer = asyncio.create_task(broker.report(A.key, REPORT))
    first = (await broker.next_event(A.key)).waited
    assert first >= 0.05
    await broker.answer(A.key, Answer.CONTINUE)
    assert await answer is Answer.CONTINUE
    await broker.finish_trial("lane", A.key, 0, 1, RankOutcome())
    assert (await broker.next_event(A.key)).waited == first, "until its first rank took it"

    await broker.begin_attempt(B.key)
    await asyncio.sleep(0.05)
    await broker.register_worker(B.key, 0, ALPHA, None)
    await asyncio.sleep(0.05)
    await broker.register_worker(B.key, 1, BETA, None)
    await broker.post_event(B.key, Ended())
    assert (await broker.next_event(B.key)).waited >= 0.05

    await broker.submit("never up", C)
    await asyncio.sleep(0.05)
    await broker.remove_lane("never up", "timed out")
    assert (await broker.next_event(C.key)).waited >= 0.05, "all of an attempt that never began"


@pytest.mark.parametrize("line", [REPORT.model_dump_json(), DIVERGED])
@async_test
async def test_report_that_is_sent_again_is_one_report(broker, line):
    await broker.submit("lane", A)
    reports = [Report.model_validate_json(line) for _ in range(3)]
    lost, again = (asyncio.ensure_future(broker.report(A.key, r)) for r in reports[:2])
    await broker.next_event(A.key)
    await blocks(broker.next_event(A.key))
    await broker.answer(A.key, Answer.PAUSE)
    assert (await lost, await again) == (Answer.PAUSE, Answer.PAUSE)
    assert await broker.report(A.key, reports[2]) is Answer.PAUSE
    await blocks(broker.next_event(A.key))
