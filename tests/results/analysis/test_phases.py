"""The bottleneck of a trial and its slow ranks are named."""

from __future__ import annotations

import pytest

from results.analysis.phases import add, bottleneck, phase_means, slow_ranks
from results.records.worker_samples import PHASES


def rank(**seconds: float) -> dict[str, float]:
    return {**dict.fromkeys(PHASES, 0.0), "compute": 10.0, **seconds}


@pytest.mark.parametrize(
    ("seconds", "found"),
    [
        ({"start": 1000.0}, None),
        ({"data": 1.0, "communication": 1.0}, None),
        ({"data": 3.0, "communication": 1.0}, "data takes 21% of the time; give workers more CPUs"),
        ({"communication": 10.0, "data": 4.0}, "communication takes 42% of the time; raise fixed"),
        ({"checkpoint": 5.0}, "checkpoint takes 33% of the time; save less often (checkpoint.ev"),
        ({"evaluation": 9.0}, "evaluation takes 47% of the time; evaluate less often"),
        ({"report": 9.0}, "report takes 47% of the time; report less often"),
    ],
)
def test_bottleneck_names_the_setting(seconds: dict[str, float], found: str | None) -> None:
    text = bottleneck(phase_means({0: rank(**seconds), 1: rank(**seconds)}))
    assert (text or "").startswith(found or "")
    assert (text is None) == (found is None)


def test_slow_rank_is_named() -> None:
    ranks = {0: rank(communication=5.0), 1: rank(compute=14.0, data=1.0), 2: rank()}
    assert list(slow_ranks(ranks)) == [
        "rank 1 is slow: it works for 1.50 x the others' time; they wait"
    ]
    assert list(slow_ranks({0: rank()})) == []


def test_sums_leave_out_phases_without_time() -> None:
    assert phase_means({}) == {}
    assert add([{"data": 1.0}, {"data": 2.0, "report": 1.0}]) == {"data": 3.0, "report": 1.0}
