"""`tune probe`: real processes train on each layout that fits; the fastest is kept for trials."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Tune

SWEEP = """
name: shapes
trainable: causal_lm
metric: eval_loss
space: {learning_rate: {loguniform: [1.0e-3, 1.0e-2]}}
fixed: {num_layers: 1, num_heads: 1, hidden_size: 256, sequence_length: 33, batch_size: 8,
  data: {max_bytes: 100000}}
scheduler: {name: none}
budget: {trials: 1}
resources: {workers: 2, layout: auto, memory_per_worker: 1}
tracking: {name: none}
"""
"""One layer, one head and an odd length: `ddp` and `fsdp` are all that works."""


@pytest.fixture
def file(tune: Tune) -> str:
    tune.write("shapes.yaml", SWEEP)
    return "shapes.yaml"


@pytest.mark.layouts
def test_fastest_layout_is_kept_for_trials_of_the_shape(tune: Tune, file: str) -> None:
    out = tune("probe", file, "--steps", "8").out
    for layout in ("{dp_replicate: 2}", "{dp_shard: 2}"):
        needs = r"([\d.]+) MiB a rank at most \(by arithmetic ([\d.]+) MiB\)$"
        line = re.search(rf"^{layout}: [\d.]+ steps/s, {needs}", out, re.MULTILINE)
        assert line, out
        assert float(line[1]) <= 1.15 * float(line[2]), layout
    found = re.search(r"^fastest    ({.*?}), which trials", out, re.MULTILINE)
    assert found is not None
    (record,) = (tune.cwd / "sweeps" / ".probes").glob("*.json")
    kept = json.loads(record.read_text())
    rates = kept["steps_per_second"]
    assert max(rates, key=lambda layout: rates[layout]) == found[1]
    assert f"taken {found[1]} by" in tune("plan", file).out
    other = tune("plan", file, "--set", "fixed.hidden_size=128").out
    assert "taken {dp_replicate: 2} by" in other, "another shape was not measured"


def test_layout_that_is_not_done_in_time_is_named(tune: Tune, file: str) -> None:
    said = tune("probe", file, "--timeout", "1", code=1).out
    assert re.findall(r"^({.*?}): failed: not done within 1 s; log /", said, re.MULTILINE) == [
        "{dp_replicate: 2}",
        "{dp_shard: 2}",
    ]
    assert not (tune.cwd / "sweeps" / ".probes").exists()


def test_what_cannot_be_measured_is_refused(tune: Tune, file: str) -> None:
    assert "leave resources.layout out" in tune.refused(
        "probe", file, "--set", "resources.layout=fsdp", "--set", "resources.memory_per_worker=null"
    )
    assert "no layout of 2 workers fits" in tune.refused(
        "probe", file, "--set", "resources.memory_per_worker=0.0001"
    )
