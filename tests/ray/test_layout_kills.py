"""A rank that dies or freezes in a collective of a layout: its trial goes on from a checkpoint."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.ray.conftest import Tune
from tests.ray.killed_rank import AFTER, SIGNALS

pytestmark = pytest.mark.layouts

HANG_S = 60
LONGEST_S = HANG_S + 100
"""A trial with its two starts, on a busy machine."""
STEPS = [2, 4, 6, 8]
LAYOUTS = ("ddp", "fsdp", "{tp: 2}", "{cp: 2}", "{pp: 2}", "{dp_shard: 2, ep: 2}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_trial_goes_on_after_the_loss_of_a_rank(tmp_path: Path, address: str, layout: str) -> None:
    tune = Tune(tmp_path, address)
    (tune.cwd / "kills.yaml").write_text(
        "name: kills\ntrainable: tests.ray.killed_rank:KilledRank\nmetric: eval_loss\nmode: min\n"
        f"space: {{fate: {{grid_search: [{', '.join(SIGNALS)}]}}}}\n"
        f"fixed: {{marks: {tune.cwd}, hidden_size: 32, sequence_length: 32, batch_size: 8,\n"
        f"  max_steps: {STEPS[-1]}, eval_every: 2, data: {{max_bytes: 200000}},\n"
        f"  experts: {'{count: 4}' if 'ep' in layout else 'null'}}}\n"
        f"resources: {{workers: 2, layout: {layout}}}\nscheduler: {{name: none}}\n"
        "tracking: {name: none}\ncheckpoint: {every: 2}\n"
        f"failure: {{max_retries: 1, hang_timeout: {HANG_S}s}}\n"
    )
    started = time.monotonic()
    tune("run", "kills.yaml")
    assert time.monotonic() - started < len(SIGNALS) * LONGEST_S
    for record in tune.trials("kills"):
        reports = tune.curve("kills", record.id)
        assert [r.step for r in reports] == STEPS, record.params
        first, second = record.attempts
        assert first.error is not None
        assert second.error is None
        before = [r.step for r in reports if r.attempt == first.number]
        assert AFTER in before, "the second attempt has begun at a checkpoint"
        assert STEPS[-1] not in before
        assert (tune.cwd / str(record.params["fate"])).exists(), "the signal was sent"
