"""The mailbox of a lane, as the actor runs it: one event loop, many waiting callers."""

import asyncio

from results.records import Report
from trainables.mailbox import Ended, Mailbox, Ready, Reported
from trainables.worker import Answer

REPORT = Report(step=1, metrics={"loss": 1.0}, attempt=1, time=0.0)


def test_a_trial_goes_through_a_lane():
    async def scenario():
        box = Mailbox()
        heard = []

        async def worker(rank):
            assert await box.job("lane", 0) == "job"
            if rank == 0:
                heard.append(await box.report("lane", REPORT))
                await box.post("lane", Ended())
            assert await box.job("lane", 1) is None

        async def driver():
            await box.post("lane", Ready())
            await box.submit("lane", "job")
            assert await box.event("lane", 1.0) == Ready()
            assert await box.event("lane", 1.0) == Reported(REPORT)
            await box.answer("lane", Answer.STOP)
            assert await box.event("lane", 1.0) == Ended()
            assert await box.event("lane", 0.001) is None
            await box.submit("lane", None)

        await asyncio.gather(worker(0), worker(1), driver())
        assert heard == [Answer.STOP]

    asyncio.run(scenario())


def test_lanes_do_not_hear_each_other():
    async def scenario():
        box = Mailbox()
        await box.post("a", Ready())
        assert await box.event("b", 0.001) is None
        await box.forget("a")
        assert await box.event("a", 0.001) is None

    asyncio.run(scenario())
