"""`gpus_per_worker: auto` on a cluster that announces a GPU, with a trainable that measures it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from results.records.failures import Remedy
from results.records.trial import TrialState
from tests.chaos.cluster import ENV, cluster
from tests.ray.conftest import Tune

pytestmark = pytest.mark.cluster

SWEEP = """
name: shares
trainable: tests.ray.sharing:Sharing
metric: loss
space: {{x: {{uniform: [0, 1]}}}}
fixed: {{steps: 3, marks: {marks}}}
search: {{name: random}}
scheduler: {{name: none}}
budget: {{trials: 8}}
resources: {{cpus_per_worker: 0.5}}
failure: {{max_retries: 0}}
tracking: {{name: none}}
"""


def test_trials_share_a_gpu_as_far_as_it_trains_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENV, "TUNE_DEVICE", "cpu")
    (tmp_path / "marks").mkdir()
    (tmp_path / "shares.yaml").write_text(SWEEP.format(marks=tmp_path / "marks"))
    with cluster(gpus=1) as made:
        tune = Tune(tmp_path, made.address)
        out = tune("run", "shares.yaml")
        tune("resume", "shares", "--trials", "+2")
    records = tune.trials("shares")
    assert {r.state for r in records} == {TrialState.COMPLETED}, [r.reason for r in records]
    firsts = Counter(r.attempts[0].gpus for r in records)
    assert firsts[1.0] == 2
    assert firsts[0.33] in (2, 3), "undone when one of them ran out of memory"
    assert {r.attempts[0].gpus for r in records[-2:]} == {0.5}, "also after the resume"
    short = (tmp_path / "marks" / "short").read_text()
    (failed,) = [r for r in records if len(r.attempts) > 1]
    assert failed.id == short
    assert [a.remedy for a in failed.attempts] == [Remedy.LARGER_SHARE, None]
    assert [a.gpus for a in failed.attempts] == [0.33, 0.5]
    for record in records:
        losses = [report.metrics["loss"] for report in tune.curve("shares", record.id)]
        assert losses == [record.params["x"] * total for total in (1, 3, 6)]
    for text in (out, tune("show", "shares")):
        assert "GPUs: gpus_per_worker 0.5 kept: a GPU trains 180 tokens/s" in text
        assert f"GPUs: gpus_per_worker 0.33 undone, 0.5 instead: {short} ran out of mem" in text
