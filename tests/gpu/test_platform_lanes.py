"""Many trials in one process on the device, and trials in processes of their own."""

from __future__ import annotations

from pathlib import Path

from results.records import environment
from results.records.trial import TrialState
from tests.gpu.probe import DIGITS, sets
from tests.ray.conftest import Tune

ONE = "resources={workers: 1, gpus_per_worker: 1}"


def test_digits_sweep_is_logged_and_runs_on_the_device(tune: Tune, device_name: str) -> None:
    out = tune("run", DIGITS, *sets(ONE, "budget.trials=6", "fixed.epochs=9"))
    assert "winner " in out
    records = tune.trials("digits")
    assert {r.state for r in records} <= {TrialState.COMPLETED, TrialState.STOPPED}
    for record in records:
        facts = environment.read(tune.paths("digits").trial(record.id), 1)
        assert facts is not None
        assert facts.hardware["device"] == device_name
        assert record.attempts[0].gpus == 1
    tags = tune.mlflow("select distinct value from tags where key = 'tune.hardware.device'")
    assert tags == [(device_name,)]
    assert tune.best("digits")["value"] > 0.8


def test_fresh_processes_for_each_trial_use_the_device(tune: Tune) -> None:
    (tune.cwd / "fresh.yaml").write_text(
        "name: fresh\ntrainable: tests.gpu.probe:Probe\nmetric: loss\nmode: max\n"
        "space: {kind: {grid_search: [one, two]}}\nfixed: {steps: 2}\n"
        "resources: {workers: 1, gpus_per_worker: 1, isolation: trial}\n"
        "scheduler: {name: none}\ntracking: {name: none}\n"
    )
    tune("run", "fresh.yaml")
    first = [tune.curve("fresh", r.id)[0].metrics for r in tune.trials("fresh")]
    assert [m["on_gpu"] for m in first] == [1.0, 1.0]
    assert len({m["pid"] for m in first}) == 2


def test_device_memory_is_flat_over_trials_of_one_process(tune: Tune) -> None:
    (tune.cwd / "flat.yaml").write_text(
        "name: flat\ntrainable: tests.gpu.probe:MeasuredLanguageModel\nmetric: eval_loss\n"
        "mode: min\nspace: {learning_rate: {grid_search: [1.e-3, 2.e-3, 3.e-3, 4.e-3, 5.e-3]}}\n"
        "fixed: {max_steps: 6, eval_every: 3, hidden_size: 256, batch_size: 64}\n"
        "resources: {workers: 1, gpus_per_worker: 1}\n"
        "scheduler: {name: none}\ntracking: {name: none}\ncheckpoint: {every: 3}\n"
    )
    tune("run", "flat.yaml")
    first = [tune.curve("flat", r.id)[0].metrics for r in tune.trials("flat")]
    assert len({m["pid"] for m in first}) == 1
    before = [m["before_mib"] for m in first]
    assert before[0] == 0
    assert max(before) - min(before[1:]) < 1, before


def test_one_trial_without_ray_uses_the_device(tune: Tune, device_name: str) -> None:
    folder = tune.cwd / "alone"
    tune("trial", DIGITS, "--folder", folder, *sets("fixed.epochs=2"))
    assert f'"device": "{device_name}"' in _only(folder, "environment.json").read_text()


def test_plan_shows_the_gpu_of_a_trial(tune: Tune) -> None:
    assert "+ 1 GPU (1 x 1 CPU + 1 GPU)" in tune("plan", DIGITS, *sets(ONE))


def _only(folder: Path, name: str) -> Path:
    (found,) = folder.rglob(name)
    return found
