"""`tune transfer --verify`: trials at the target, on a real cluster."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from search_spaces.loading.sweep_file import load_sweep
from tests.ray.conftest import Tune
from tests.tuning.simulate import new_sweep, next_job, open_run, train

PROGRAM = """
import argparse, math
from tune_report import report
parser = argparse.ArgumentParser()
for name in ("lr", "width", "max_steps"):
    parser.add_argument("--" + name, type=float)
options = parser.parse_args()
best = 0.01 if options.width < 500 else {best}
report(step=1, loss=1 + math.log(options.lr / best) ** 2)
"""
SWEEP = """
name: small
command: [python, train.py, "{args}"]
metric: loss
mode: min
space:
  width: {grid_search: [32, 64, 128]}
  max_steps: {grid_search: [10, 20, 30]}
  lr: {loguniform: [1.0e-3, 1.0e-1]}
search: sobol
scheduler: none
budget: {trials: 45}
tracking: {name: none}
"""


NEAR = pytest.param(0.01, 0, marks=pytest.mark.scripts)


@pytest.mark.parametrize(("best", "code"), [NEAR, (0.0001, 1)])
def test_trials_at_the_target_agree_or_not(tune: Tune, best: float, code: int) -> None:
    (tune.cwd / "train.py").write_text(PROGRAM.replace("{best}", str(best)))
    file, big = tune.cwd / "small.yaml", tune.cwd / "big.yaml"
    file.write_text(SWEEP)
    target = SWEEP.replace("small", "big").replace("  width: {grid_search: [32, 64, 128]}\n", "")
    target = target.replace("  max_steps: {grid_search: [10, 20, 30]}\n", "")
    big.write_text(f"{target}fixed: {{width: 512, max_steps: 60}}\n")
    spec = load_sweep(file).spec
    run = open_run(new_sweep(spec, tune.paths("small").root.parent).root, spec)
    while not run.finished:
        job = next_job(run)
        train(run, job, 1, lambda config, _: 1 + math.log(config["lr"] / 0.01) ** 2)
        run.on_ended(job.trial_id)
    run.lifecycle.release()
    asked: tuple[Any, ...] = ("transfer", "small", "--to", big, "--verify", "3", "--json")
    asked += ("--address", tune.address) * bool(tune.address)
    made = json.loads(tune(*asked, code=code))
    assert made["verified"]["agrees"] is (code == 0)
    trials = tune.trials(made["verified"]["sweep"])
    assert {trial.config["max_steps"] for trial in trials} == {30}
    assert sorted(trial.config["lr"] for trial in trials) == pytest.approx([0.005, 0.01, 0.02])
