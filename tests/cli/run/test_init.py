"""`tune init --like`: files of other programs become sweep files that load."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.sweep import SweepSpec
from tests.cli.conftest import Tune
from tests.user_code.conftest import PROGRAMS
from tuning.translation.translate import sweep_text


def translated(folder: Path, name: str, text: str) -> tuple[SweepSpec, str]:
    """The sweep file like another one, loaded, and its text."""
    (folder / name).write_text(text)
    found = sweep_text(str(folder / name))
    (folder / "sweep.yaml").write_text(found)
    return load_sweep(folder / "sweep.yaml").spec, found


WANDB = """
program: train.py
method: bayes
name: my sweep
metric: {name: val/loss, goal: minimize}
run_cap: 30
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 0.1}
  momentum: {min: 0.0, max: 0.9}
  layers: {min: 1, max: 4}
  width: {distribution: q_uniform, min: 32, max: 256, q: 32}
  optimizer: {values: [adam, sgd, "on"]}
  epochs: {value: 9}
  data: {parameters: {crop: {values: [16, 32]}, path: {value: a.txt}}}
  odd: {distribution: inv_log_uniform_values, min: 1, max: 2}
early_terminate: {type: hyperband, min_iter: 3, max_iter: 27, eta: 3}
command: ["${env}", "${interpreter}", "${program}", "${args}", "${args_json_file}"]
controller: {type: local}
"""


def test_wandb_sweep(tmp_path: Path) -> None:
    spec, text = translated(tmp_path, "wandb.yaml", WANDB)
    assert spec.command == ["python", "train.py", "{args}"]
    assert [(o.metric, o.mode) for o in spec.objectives] == [("val/loss", "min")]
    assert {name: domain.dump() for name, domain in spec.domains().items()} == {
        "lr": {"loguniform": [1e-5, 0.1]},
        "momentum": {"uniform": [0.0, 0.9]},
        "layers": {"randint": [1, 5]},
        "width": {"qrandint": [32, 256, 32]},
        "optimizer": {"choice": ["adam", "sgd", "on"]},
        "data.crop": {"choice": [16, 32]},
    }
    assert spec.fixed == {"epochs": 9, "data": {"path": "a.txt"}}
    assert (spec.scheduler.name, spec.scheduler.max_t, spec.scheduler.grace_period) == (
        "asha",
        27,
        3,
    )
    assert (spec.search.name, spec.budget.trials) == ("gp", 30)
    assert "#   wandb.yaml:15: odd: {'distribution': 'inv_log_uniform_values'" in text
    assert "#   wandb.yaml:18: controller is not translated" in text
    assert "#   wandb.yaml:17: ${args_json_file} of the command is not translated" in text


KATIB = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: random}
spec:
  objective: {type: maximize, goal: 0.99, objectiveMetricName: accuracy}
  algorithm: {algorithmName: bayesianoptimization}
  parallelTrialCount: 3
  maxTrialCount: 12
  maxFailedTrialCount: 3
  parameters:
    - {name: lr, parameterType: double, feasibleSpace: {min: "0.01", max: "0.05"}}
    - {name: layers, parameterType: int, feasibleSpace: {min: "2", max: "5"}}
    - {name: width, parameterType: int, feasibleSpace: {min: "32", max: "96", step: "32"}}
    - {name: optimizer, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
    - {name: odd, parameterType: double, feasibleSpace: {min: "0", max: "1", distribution: normal}}
  trialTemplate:
    primaryContainerName: training-container
    trialParameters:
      - {name: learningRate, reference: lr}
      - {name: layers, reference: layers}
    trialSpec:
      kind: Job
      spec:
        template:
          spec:
            containers:
              - name: training-container
                image: docker.io/mnist:latest
                command: [python3, /opt/mnist.py, "--lr=${trialParameters.learningRate}"]
                args: ["--layers=${trialParameters.layers}"]
"""


def test_katib_experiment(tmp_path: Path) -> None:
    spec, text = translated(tmp_path, "katib.yaml", KATIB)
    assert spec.command == ["python3", "/opt/mnist.py", "--lr={lr}", "--layers={layers}"]
    assert [(o.metric, o.mode) for o in spec.objectives] == [("accuracy", "max")]
    assert {name: domain.dump() for name, domain in spec.domains().items()} == {
        "lr": {"uniform": [0.01, 0.05]},
        "layers": {"randint": [2, 6]},
        "width": {"qrandint": [32, 96, 32]},
        "optimizer": {"choice": ["sgd", "adam"]},
    }
    assert (spec.budget.trials, spec.budget.target, spec.resources.concurrency) == (12, 0.99, 3)
    assert spec.report_from.stdout == {"accuracy": r"accuracy\s*[=:]\s*([-+.\deE]+)"}
    assert "#   katib.yaml:16: parameter odd is not translated" in text
    assert "#   katib.yaml:10: maxFailedTrialCount is not translated" in text
    assert "the image docker.io/mnist:latest" in text


RAY = """
import no_such_module
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from other import helper

EPOCHS = 9
space = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "width": tune.choice([32, 64]),
    "model": {"layers": tune.randint(lower=1, upper=4), "act": "relu"},
    "epochs": EPOCHS,
    "drawn": tune.sample_from(lambda spec: 1),
}


def train_fn(config):
    tune.report({"loss": config["lr"]})


def main():
    scheduler = ASHAScheduler(metric="loss", mode="min", grace_period=3, brackets=2, max_t=EPOCHS)
    tuner = tune.Tuner(
        tune.with_resources(train_fn, {"gpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(num_samples=20, scheduler=scheduler, max_concurrent_trials=4),
        run_config=tune.RunConfig(stop={"loss": 0.1}),
    )
    tuner.fit()
"""


def test_ray_tune_script_is_read_but_not_executed(tmp_path: Path) -> None:
    spec, text = translated(tmp_path, "script.py", RAY)
    assert spec.trainable == f"{tmp_path}/script.py:train_fn"
    assert {name: domain.dump() for name, domain in spec.domains().items()} == {
        "lr": {"loguniform": [1e-4, 1e-1]},
        "width": {"choice": [32, 64]},
        "model.layers": {"randint": [1, 4]},
    }
    assert spec.fixed == {"model": {"act": "relu"}, "epochs": 9}
    assert (spec.scheduler.name, spec.scheduler.max_t, spec.scheduler.grace_period) == (
        "asha",
        9,
        3,
    )
    assert (spec.budget.trials, spec.resources.concurrency) == (20, 4)
    for note in (
        "#   script.py:13: drawn: tune.sample_from(lambda spec: 1) is not translated",
        "#   script.py:22: ASHAScheduler(brackets=…) is not translated",
        "#   script.py:24: tune.with_resources(train_fn, {'gpu': 1}) is not translated",
        "#   script.py:27: stop={'loss': 0.1} is not translated",
    ):
        assert note in text


OLDER = """
from ray import tune
from mine import Model
from ray.tune.schedulers import PopulationBasedTraining as PBT

pbt = PBT(time_attr="training_iteration", perturbation_interval=5, hyperparam_mutations={})
tune.run(Model, config={"lr": tune.uniform(1, 2)}, scheduler=pbt, num_samples=3,
         metric="acc", mode="max", stop={"training_iteration": 50})
"""


def test_older_ray_tune_script(tmp_path: Path) -> None:
    spec, _ = translated(tmp_path, "older.py", OLDER)
    assert (spec.trainable, spec.budget.trials) == ("mine:Model", 3)
    found = spec.scheduler
    assert (found.name, found.max_t, found.interval, found.time_attr) == (
        "pbt",
        50,
        5,
        "training_iteration",
    )


STUDY = """
import optuna


def objective(trial):
    kind = trial.suggest_categorical("kind", ["linear", "deep", "none"])
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    if kind == "deep":
        trial.suggest_int("layers", 1, 4)
    if kind == "none":
        raise ValueError("no model")
    trial.report(rate, 1)
    open("trained", "w")


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=25)
"""


def test_optuna_objective_is_called_until_it_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.py").write_text(STUDY)
    text = sweep_text("study.py:objective")
    (tmp_path / "sweep.yaml").write_text(text)
    spec = load_sweep(tmp_path / "sweep.yaml").spec
    assert {name: domain.dump() for name, domain in spec.domains().items()} == {
        "kind": {"choice": ["linear", "deep", "none"]},
        "rate": {"loguniform": [1e-5, 1e-1]},
        "layers": {"randint": [1, 5]},
    }
    assert (spec.trainable, spec.budget.trials) == ("study.py:objective", 25)
    assert spec.objectives[0].mode == "max"
    assert not (tmp_path / "trained").exists()
    for note in (
        "layers is asked for in some branches only",
        "3 calls of the objective; other branches are not known",
        "call 3 of the objective failed: ValueError: no model",
        "study.py:17: MedianPruner is not translated",
    ):
        assert note in text


def test_grid_needs_no_budget(tmp_path: Path) -> None:
    grid = OLDER.replace("tune.uniform(1, 2)", "tune.grid_search([1, 2])").replace("=pbt", "=None")
    spec, text = translated(tmp_path, "grid.py", grid)
    assert (spec.budget.trials, spec.scheduler.max_t) == (2, 50)
    assert "guess" not in text


WRONG = {
    "none.yaml": (None, "no such file; it takes a sweep of W&B"),
    "other.yaml": ("a: 1\n", r"neither parameters \(W&B\) nor kind: Experiment"),
    "bad.yaml": ("a: [1\n", "not valid YAML"),
    "list.yaml": ("- 1\n", "not a mapping of keys"),
    "empty.yaml": ("parameters: {a: {value: 1}}\n", "no parameter with a domain was found"),
    "plain.py": ("x = 1\n", "calls neither tune.Tuner nor tune.run"),
    "syntax.py": ("x = = 1\n", "syntax.py:1: not valid Python"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_translated_is_one_line(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        sweep_text(str(tmp_path / name))
    assert len(error.value.problems) == 1
    assert "\n" not in str(error.value)


def test_command_writes_a_file_that_can_be_planned(tune: Tune) -> None:
    tune.write("objective.py", (PROGRAMS / "optuna_objective.py").read_text())
    like = ("init", "--like", "objective.py:objective")
    printed = tune(*like).out
    assert "check it: tune plan sweep.yaml" in tune(*like, "-o", "sweep.yaml").out
    assert (tune.cwd / "sweep.yaml").read_text() == printed
    tune("plan", "sweep.yaml")
    assert "sweep.yaml: exists; choose another name" in tune.refused(*like, "-o", "sweep.yaml")
