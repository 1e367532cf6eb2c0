"""Trials that do not fit the cluster, and `tune plan`: nothing runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from results.records.trial import TrialState
from search_spaces.loading.sweep_file import load_sweep
from tests.ray.conftest import ENV, Tune

SWEEP = """
name: counted
trainable: digits
metric: loss
space: {learning_rate: {loguniform: [1.0e-4, 1.0e-1]}}
fixed: {epochs: 2}
budget: {trials: 6}
scheduler: {name: none}
resources: {workers: 2}
tracking: {name: none}
"""


@pytest.fixture
def counted(tune: Tune) -> Path:
    file = tune.cwd / "counted.yaml"
    file.write_text(SWEEP)
    return file


def test_trial_larger_than_the_cluster_is_refused(tune: Tune, counted: Path) -> None:
    said = tune("run", counted, "--set", "resources.workers=4", code=2)
    assert said == (
        "resources: a trial needs 4 CPUs (4 x 1 CPU), but the cluster has 2 CPUs on 1 machine: "
        "2 of 4 workers fit; lower resources.workers or resources.cpus_per_worker, or join a"
        " larger cluster with --address\n"
    )


HOLD_A_CPU = """
import sys, ray
from ray.util.placement_group import placement_group
ray.init(address=sys.argv[1], log_to_driver=False)
ray.get(placement_group([{"CPU": 1}]).ready())
print("held", flush=True)
sys.stdin.read()
"""


def test_session_ends_when_workers_never_start(tune: Tune, counted: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_CPU, tune.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENV,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        out = tune("run", counted, "--set", "failure.start_timeout=2s", code=1)
        other.stdin.close()
    assert "no trial can start: WorkerGroupStartupTimeoutError: " in out
    assert "continue with: tune resume counted" in out
    (record,) = tune.trials("counted")
    assert record.state is TrialState.PENDING


def test_plan_prints_capacity_and_writes_nothing(tune: Tune, counted: Path) -> None:
    out = tune("plan", counted, "--set", "budget.trials=3")
    assert "at once    1 of 1 that fit" in out
    assert "for 3 trials" in out
    assert not (tune.cwd / "sweeps").exists()
    assert load_sweep(counted).spec.budget.trials == 6
