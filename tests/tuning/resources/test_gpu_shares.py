"""How many trials share a GPU: laws of the decision, on GPUs that are simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuning.controller.resources.gpu_shares import (
    GAIN,
    IDLE,
    SHARES,
    GpuShares,
    Measurement,
    decide,
    undo,
)
from tuning.controller.resources.placement import workers_per_gpu

UNIT = "tokens/s"
PARTS = st.floats(0, 1)


def concurrency(share: float) -> int:
    return workers_per_gpu(share)


def measured(share: float, rate: float, idle: float = 0.6, memory: float = 0.1) -> Measurement:
    return Measurement(share=share, idle=idle, memory=memory, rate=rate, unit=UNIT)


def settle(
    gpu: Callable[[float], Measurement],
    concurrency: Callable[[float], int] = concurrency,
    now: GpuShares | None = None,
) -> GpuShares:
    """Trials that measure `gpu(share)`, until the share stays."""
    now = now or GpuShares()
    for _ in range(20):
        every = (*now.measured, gpu(now.share))
        now = decide(now.model_copy(update={"measured": every}), concurrency)
        if now.settled:
            return now
    raise AssertionError("it never settles")


@given(st.tuples(*[st.floats(1, 1e6)] * 4), st.tuples(*[PARTS] * 4), PARTS)
def test_share_is_the_last_one_of_those_that_each_gain_a_tenth(
    rates: tuple[float, ...], idles: tuple[float, ...], memory: float
) -> None:
    at = {
        share: measured(share, rate, idle, memory)
        for share, rate, idle in zip(SHARES, rates, idles, strict=True)
    }
    found, best = settle(at.__getitem__), SHARES[0]
    for share in SHARES[1:]:
        before, after = (workers_per_gpu(s) * at[s].rate for s in (best, share))
        if at[best].idle <= IDLE or memory > share or after < GAIN * before:
            break
        best = share
    assert found.share == best
    assert len(found.measured) <= 2 + 2 + 3 + 4
    assert decide(found, concurrency) is found, "it is settled"
    assert GpuShares.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("rates", "share", "said"),
    [
        ({1.0: 100, 0.5: 90, 0.33: 85, 0.25: 80}, 0.25, ["0.5 kept", "1.80 times", "0.25 kept"]),
        ({1.0: 100, 0.5: 54}, 1.0, ["0.5 tried", "0.5 undone, 1 instead", "1.08 times"]),
        ({1.0: 100, 0.5: 90, 0.33: 61}, 0.5, ["0.5 kept", "0.33 undone, 0.5 instead"]),
    ],
)
def test_decisions_say_the_rate_of_a_gpu(
    rates: Mapping[float, float], share: float, said: list[str]
) -> None:
    found = settle(lambda share: measured(share, rates[share]))
    assert found.share == share
    text = "\n".join(found.decisions)
    assert [part for part in said if part not in text] == []
    assert UNIT in text


@pytest.mark.parametrize(
    ("idle", "memory", "most", "rates", "said"),
    [
        (0.3, 0.1, 9, [100, 100], "a GPU is idle for 30%"),
        (0.6, 0.51, 9, [100, 100], "a trial needs 51% of a GPU's memory"),
        (0.6, 0.1, 1, [100, 100], "no more trials would run"),
        (0.6, 0.1, 9, [100, 151], "trials differ too much"),
    ],
)
def test_a_whole_gpu_stays_for_a_reason(
    idle: float, memory: float, most: int, rates: list[int], said: str
) -> None:
    left = iter(rates)
    found = settle(
        lambda share: measured(share, next(left), idle, memory),
        lambda share: min(most, concurrency(share)),
    )
    assert (found.share, len(found.decisions)) == (1.0, 1)
    assert f"0.5 not tried: {said}" in found.decisions[0]


@given(st.sampled_from(SHARES), st.sampled_from(SHARES[1:]))
def test_out_of_memory_takes_the_next_larger_share_for_good(now: float, failed: float) -> None:
    found = undo(GpuShares(share=now), failed, "t0003 ran out of memory")
    assert found.share > failed
    if now > failed:
        assert found.decisions == (), "it is undone already"
    else:
        assert found.share == SHARES[SHARES.index(failed) - 1]
        assert found.settled
        assert "t0003 ran out of memory" in found.decisions[0]


def test_one_trial_decides_nothing() -> None:
    now = GpuShares(measured=(measured(1.0, 100),))
    assert decide(now, concurrency) is now
