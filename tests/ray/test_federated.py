from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from results.checkpoints.commit import newest_intact
from results.records.spec_file import read_spec
from results.trial_paths import TrialPaths
from tests.ray.conftest import Tune
from tests.threads import one_thread
from tests.trainables.local import run_trial
from tuning.controller.trial_jobs import with_init_seed

SHIPPED = Path(__file__).parents[2] / "search_spaces" / "federated.yaml"
SMALL = ("budget.trials=2", "fixed.rounds=3", "scheduler.max_t=3", "space.server=fedadam")


def weights(trial: TrialPaths) -> dict[str, torch.Tensor]:
    found = newest_intact(trial)
    assert found is not None
    return load_file(found.folder / "model.safetensors")


@pytest.mark.scripts
@one_thread()
def test_two_workers_train_the_same_model_as_one_process(tune: Tune, tmp_path: Path) -> None:
    tune("run", SHIPPED, *(arg for change in SMALL for arg in ("--set", change)))
    spec = read_spec(tune.paths("federated"))
    records = tune.trials("federated")
    assert [r.state.value for r in records] == ["completed"] * 2
    for record in records:
        alone = run_trial(
            tmp_path / record.id,
            "federated",
            with_init_seed(spec, record.config, record.seed),
            seed=record.seed,
        )
        for report in tune.curve("federated", record.id):
            assert report.metrics == pytest.approx(alone.curve[report.step], rel=1e-5)
        theirs = weights(tune.paths("federated").trial(record.id))
        ours = weights(TrialPaths(tmp_path / record.id))
        assert all(torch.equal(theirs[name], ours[name]) for name in ours)
