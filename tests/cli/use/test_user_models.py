"""`tune average` and `tune export` of user code, by the functions that the sweep file names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from results.averaging.soup.scoring import read_soup
from results.paths import SweepPaths
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import Tune
from tests.trainables.user_code.kept import add_manifest
from tuning.controller.preflight.checks import preflight

CODE = """
import torch

def train(config):
    report(config["x"])

def weights(folder):
    return torch.load(folder / "state.pt")["model"]

def evaluate(weights, config, split):
    assert -1 <= config["x"] <= 1
    truth = {"selection": 1.0, "test": 1.5}[split]
    return {"loss": [abs(float(weights["w"][0]) - truth), 0.25], "other": 1}

def broken(weights, config, split):
    return {"loss": weights["b"]}
"""
SHIFT = (0.0, 2.0, 1.25)
"""The first weight of each trial; the truth is in their middle."""


@pytest.fixture
def sweep(tune: Tune) -> SweepPaths:
    """A loop's sweep, whose trials have checkpoints of their own format."""
    tune.write("code.py", CODE)
    functions = {"weights": "code.py:weights", "evaluate": "code.py:evaluate"}
    changes = {"trainable": "code.py:train", "budget": {"trials": 3}, "user_code": functions}
    paths = tune.sweep("mine", **changes)
    for trial_id, shift in zip(paths.trial_ids(), SHIFT, strict=True):
        folder = paths.trial(trial_id).ray_train_attempt(1) / "checkpoint_1"
        folder.mkdir(parents=True)
        torch.save({"model": {"w": torch.full((4,), shift)}}, folder / "state.pt")
        add_manifest(paths.trial(trial_id), folder, 1)
    return paths


def test_average_is_scored_by_the_function_of_the_file(tune: Tune, sweep: SweepPaths) -> None:
    command = ("average", "mine", "--trials", "t0000,t0001,t0002", "--method", "uniform")
    assert "--force" in tune.refused(*command)  # where the trials started is not known
    tune(*command, "--force", "--name", "mean")
    soup = read_soup(sweep.soup("mean"))
    mean = sum(SHIFT) / 3
    assert load_file(sweep.soup("mean") / "model.safetensors")["w"].tolist() == pytest.approx(
        [mean] * 4
    )
    assert soup.single == "t0002"  # the nearest to the truth of the selection split
    assert soup.scores["uniform"].mean == pytest.approx((1.5 - mean + 0.25) / 2)
    assert soup.scores["uniform"].interval is not None  # one number per example


def test_export_of_a_soup_and_of_a_trial(tune: Tune, sweep: SweepPaths) -> None:
    tune("average", "mine", "--top", "2", "--force", "--name", "two")
    for arguments in (["--soup", "two"], ["--trial", "t0001"]):
        tune("export", "mine", "--to", "safetensors", *arguments)
    found = load_file(sweep.exports / "t0001-safetensors" / "model.safetensors")
    assert found["w"].tolist() == [SHIFT[1]] * 4
    assert (sweep.exports / "two-safetensors" / "model.safetensors").is_file()
    refused = tune.refused("export", "mine", "--to", "pt2", "--trial", "t0001")
    assert refused.startswith("user_code.model: not in the sweep file; it names your function")


MODEL = """
def model(weights, config):
    module = torch.nn.Linear(4, 1, bias=False)
    module.load_state_dict({"weight": weights["w"][None]})
    return module, torch.rand(2, 4)
"""


@pytest.mark.slow
def test_function_that_makes_the_module_leads_to_onnx(tune: Tune, sweep: SweepPaths) -> None:
    import onnxruntime

    tune.write("code.py", CODE + MODEL)
    tune("resume", "mine", "--set", "user_code.model=code.py:model")
    tune("export", "mine", "--to", "onnx", "--trial", "t0001")
    model = onnxruntime.InferenceSession(sweep.exports / "t0001-onnx" / "model.onnx")
    (given,) = model.get_inputs()
    found = model.run(None, {given.name: torch.eye(4).repeat(2, 1).numpy()})[
        0
    ]  # another batch size
    assert found.ravel().tolist() == [SHIFT[1]] * 8


def test_tensors_of_safetensors_files_need_no_function(tune: Tune) -> None:
    tune.write("code.py", CODE)
    paths = tune.sweep("plain", trainable="code.py:train", budget={"trials": 1})
    trial = paths.trial("t0000")
    folder = trial.ray_train_attempt(1) / "checkpoint_1"
    (folder / "checkpoint").mkdir(parents=True)
    assert "no intact checkpoint" in tune.refused("export", "plain", "--to", "safetensors")
    (folder / "trainer.pt").write_text("")
    add_manifest(trial, folder, 1)
    refused = tune.refused("export", "plain", "--to", "safetensors")
    assert refused.startswith(f"{folder}: no *.safetensors file in this checkpoint (checkpoint, ")
    for name in ("a", "b"):
        save_file({name: torch.ones(2)}, folder / "checkpoint" / f"{name}.safetensors")
    tune("export", "plain", "--to", "safetensors")
    copy = paths.exports / "t0000-safetensors" / "model.safetensors"
    assert load_file(copy).keys() == {"a", "b"}


def test_function_that_fails_is_named_with_its_line(tune: Tune, sweep: SweepPaths) -> None:
    tune("resume", "mine", "--set", "user_code.evaluate=code.py:broken")
    refused = tune.refused("average", "mine", "--force")
    assert refused.startswith(f"user_code.evaluate: {tune.cwd}/")
    assert refused.endswith("code.py:broken failed: KeyError: 'b' (code.py:16)\n"), refused


SWEEP = """
name: mine
trainable: TRAINABLE
metric: loss
space: {x: {uniform: [0, 1]}}
scheduler: {name: none}
budget: {trials: 1}
user_code:
  weights: code.py:weight
  evaluate: code.py:weights
  model: gone.py:model
"""


def problems(folder: Path, trainable: str) -> list[str]:
    file = folder / "mine.yaml"
    file.write_text(SWEEP.replace("TRAINABLE", trainable))
    with pytest.raises(UserError) as refused:
        preflight(load_sweep(file))
    return list(refused.value.problems)


def test_plan_checks_the_functions(tune: Tune) -> None:
    code = tune.write("code.py", CODE)
    first, second, third = problems(tune.cwd, "code.py:train")
    assert first.startswith("mine.yaml:9: user_code.weights: ")
    assert first.endswith(f"{code} has no function 'weight' (did you mean 'weights'?)")
    assert second == (
        f"mine.yaml:10: user_code.evaluate: {code}:7: weights() is called with "
        "(weights, config, split)"
    )
    assert third.startswith("mine.yaml:11: user_code.model: gone.py: no such file")
    assert problems(tune.cwd, "digits")[-1] == (
        "mine.yaml:8: user_code: has no effect: digits reads its models itself; remove it"
    )
