"""Ranks of a trial that report unequally often."""

from __future__ import annotations

import asyncio

import pytest

from trainables.launch.broker.broker import Broker


def ended(reports: dict[int, int], *, late: int | None = None) -> dict[int, list[int] | None]:
    """What each rank hears that returned: those whose count is `late` begin one report more."""

    async def run() -> dict[int, list[int] | None]:
        broker, waiting = Broker(), {}
        for rank, count in reports.items():
            for number in range(1, count + 1):
                await broker.count_report("t.1", rank, number)
        for rank, count in reports.items():
            if rank != late:
                call = broker.wait_for_ranks("t.1", rank, len(reports), count)
                waiting[rank] = asyncio.create_task(call)
        await asyncio.sleep(0)
        if late is not None:
            await broker.count_report("t.1", late, reports[late] + 1)
        done = await asyncio.wait_for(asyncio.gather(*waiting.values()), 5)
        return dict(zip(waiting, done, strict=True))

    return asyncio.run(run())


@pytest.mark.parametrize("counts", [{0: 3, 1: 3}, {0: 0, 1: 0, 2: 0}])
def test_ranks_that_report_equally_often_end_together(counts: dict[int, int]) -> None:
    assert ended(counts) == {rank: [] for rank in counts}


def test_rank_that_returns_early_hears_who_waits_for_it() -> None:
    assert ended({0: 3, 1: 3}, late=0) == {1: [0]}
    assert ended({0: 2, 1: 2, 2: 2}, late=2) == {0: [2], 1: [2]}
