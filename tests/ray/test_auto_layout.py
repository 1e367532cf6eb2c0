"""`resources.layout: auto` on a real cluster: layouts by trial, pauses, and too little memory."""

from __future__ import annotations

import pytest

from results.records.failures import Remedy
from results.records.trial import TrialRecord, TrialState
from tests.ray.conftest import Tune

SMALL, LARGE = 32, 256
SWEEP = """
name: shapes
trainable: causal_lm
metric: eval_loss
space:
  hidden_size: {grid_search: [256, 32]}
  learning_rate: {grid_search: [1.0e-2, 1.0e-3]}
fixed:
  num_layers: 2
  num_heads: 4
  sequence_length: 32
  batch_size: 8
  max_steps: 8
  eval_every: 2
  eval_sequences: 8
  data: {max_bytes: 200000}
search: {name: grid}
scheduler: {name: asha_promote, grace_period: 4, max_t: 8, reduction_factor: 2}
budget: {trials: 4}
checkpoint: {every: 2}
resources: {workers: 2, layout: auto, memory_per_worker: 0.03}
tracking: {name: none}
"""


def run(tune: Tune, *changes: str) -> tuple[str, list[TrialRecord]]:
    (tune.cwd / "shapes.yaml").write_text(SWEEP)
    out = tune("run", "shapes.yaml", *(part for change in changes for part in ("--set", change)))
    return out, tune.trials("shapes")


def layouts(record: TrialRecord) -> set[str]:
    chosen = [(a.layout, a.workers) for a in record.attempts if a.layout and a.workers > 1]
    return {layout.resolve(workers).as_written() for layout, workers in chosen}


def check_steps(tune: Tune, records: list[TrialRecord]) -> None:
    """No step is lost or done twice, also where a trial was paused."""
    for record in records:
        steps = [report.step for report in tune.curve("shapes", record.id)]
        assert steps == [2, 4, 6, 8][: len(steps)]
        assert record.state in (TrialState.COMPLETED, TrialState.PAUSED), record.reason


def test_sharded_and_copied_trials_of_one_sweep_pause_and_go_on(tune: Tune) -> None:
    out, records = run(tune)
    assert "as {dp_shard: 2}" in out
    assert "as {dp_replicate: 2}" in out
    for record in records:
        needs = "{dp_shard: 2}" if record.config["hidden_size"] == LARGE else "{dp_replicate: 2}"
        assert layouts(record) == {needs}
    check_steps(tune, records)
    assert {r.state for r in records} == {TrialState.COMPLETED, TrialState.PAUSED}
    assert any(len(r.attempts) > 1 for r in records), "one was paused and resumed"
    shown = tune("show", "shapes", next(r.id for r in records if "{dp_shard: 2}" in layouts(r)))
    assert "with 2 workers as {dp_shard: 2}" in shown


@pytest.mark.layouts
def test_lanes_have_as_many_workers_as_the_layouts(tune: Tune) -> None:
    elastic = "resources.workers={min: 1, max: 2, grow_after: 1h}"
    _, records = run(tune, elastic, "resources.concurrency=2", "scheduler={name: none}")
    for record in records:
        large = record.config["hidden_size"] == LARGE
        assert {a.workers for a in record.attempts} == {2 if large else 1}
        assert layouts(record) == ({"{dp_shard: 2}"} if large else set())
    check_steps(tune, records)


@pytest.mark.layouts
def test_out_of_memory_goes_on_with_a_larger_layout(tune: Tune) -> None:
    out, records = run(
        tune,
        "trainable=tests.ray.short_of_memory:ShortOfMemory",
        "space={hidden_size: {grid_search: [32]}}",
        "scheduler={name: none}",
        "budget.trials=1",
        "fixed.micro_batch_size=1",  # it cannot be halved
    )
    (record,) = records
    first, second = record.attempts
    assert first.remedy is Remedy.LARGER_LAYOUT
    assert "can't allocate memory" in (first.error or "")
    assert [a.layout.resolve(2).as_written() for a in record.attempts if a.layout] == [
        "{dp_replicate: 2}",
        "{dp_shard: 2}",
    ]
    assert "t0000 out of memory; takes a larger layout: " in out
    assert (record.state, second.error) == (TrialState.COMPLETED, None)
    curve = tune.curve("shapes", "t0000")
    assert [r.step for r in curve] == [2, 4, 6, 8]
    assert (curve[0].attempt, curve[-1].attempt) == (1, 2)
    shown = tune("show", "shapes", "t0000")
    assert "as {dp_replicate: 2}: larger_layout: " in shown
    assert "as {dp_shard: 2}" in shown
