"""Schedulers that pause trials and copy weights, on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.checkpoints.commit import newest_intact
from results.records.trial import TrialState
from tests.ray.conftest import Tune
from tests.ray.stepping import STATE

SWEEP = """
name: counter
trainable: tests.ray.stepping:Counter
metric: total
mode: max
space: {rate: {uniform: [0.1, 1.0]}}
fixed: {steps: 4}
search: {name: sobol}
scheduler: {name: pbt, max_t: 4, interval: 2}
budget: {trials: 4}
resources: {concurrency: 1}
tracking: {name: none}
"""

SEVERAL = [
    "metric=[total, cost]",
    "mode=[max, min]",
    "scheduler={name: asha_promote, max_t: 4, reduction_factor: 2}",
    "budget.trials=6",
]


@pytest.fixture
def counter(tune: Tune) -> Path:
    file = tune.cwd / "counter.yaml"
    file.write_text(SWEEP)
    return file


def test_pbt_copies_weights(tune: Tune, counter: Path) -> None:
    tune("run", counter)
    records = {r.id: r for r in tune.trials("counter")}
    assert {r.state for r in records.values()} == {TrialState.COMPLETED}
    (clone,) = (r for r in records.values() if r.lineage)
    (taken,) = clone.lineage
    assert (taken.step, taken.donor_step) == (2, 2)
    donor = records[taken.donor].params["rate"]
    found = newest_intact(tune.paths("counter").trial(clone.id))
    rates = json.loads((found.folder / STATE).read_text())
    assert rates == [donor, donor, taken.after["rate"], taken.after["rate"]]
    assert [p.step for p in tune.curve("counter", clone.id) if p.attempt == 2] == [3, 4]
    assert f"{clone.id} at step 2: rate " in tune("show", "counter")


def test_asha_promote_with_two_objectives(tune: Tune, counter: Path) -> None:
    out = tune("run", counter, *(part for s in SEVERAL for part in ("--set", s)))
    assert "search sobol (as the sweep file says)" in out
    records = tune.trials("counter")
    ends = [(r.state, r.end_step) for r in records]
    assert (TrialState.COMPLETED, 4) in ends
    assert {state for state, step in ends if step != 4} == {TrialState.PAUSED}
    again = [r for r in records if len(r.attempts) > 1]
    for record in again:
        steps = [p.step for p in tune.curve("counter", record.id)]
        assert steps == list(range(1, len(steps) + 1))
    assert again
    front = tune.best("counter")["front"]
    assert len(front) == len(records)  # more total is more cost: nothing dominates anything


GROWING = [
    "space.rate={grid_search: [0.9, 0.8, 0.1, 0.2]}",
    "search.name=grid",
    "scheduler={name: asha_promote, max_t: 4, reduction_factor: 2}",
    "budget.trials=2",
]


def test_extended_sweep_promotes_a_paused_trial(tune: Tune, counter: Path) -> None:
    tune("run", counter, *(part for s in GROWING for part in ("--set", s)))
    first, second = tune.trials("counter")
    assert (first.state, first.end_step) == (TrialState.COMPLETED, 4)
    assert (second.state, second.reason) == (TrialState.PAUSED, "asha_promote at step 1")
    said = tune("show", "counter")
    assert "1 of 2 trials finished, 1 paused; done, ended by budget.trials: 2 trials" in said

    tune("resume", "counter", "--trials", "+2")
    unchanged, promoted, *_ = tune.trials("counter")
    assert unchanged == first
    assert (promoted.state, promoted.reason) == (TrialState.PAUSED, "asha_promote at step 2")
    assert [(p.step, p.attempt) for p in tune.curve("counter", "t0001")] == [(1, 1), (2, 2)]
