"""`tune trial`: one configuration in this process, kept and resumed with --folder."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from results.checkpoints.commit import verify
from results.records.reports import read_reports
from results.trial_paths import TrialPaths
from tests.cli.conftest import DIGITS, Tune

OWN = """
from trainables import Trainable, TrainableConfig


class Config(TrainableConfig):
    value: float


class Own(Trainable[Config]):
    Config = Config
    can_evaluate = False

    def train(self, config, worker):
        worker.report(step=1, metrics={"score": config.value, "other": 1})
"""
OWN_SWEEP = """
name: own
trainable: own.py:Own
metric: score
mode: max
space: {value: {uniform: [0, 1]}}
scheduler: {name: none}
budget: {trials: 1}
"""
SMALL = ["--set", "space.num_layers=1", "--set", "space.batch_size=128"]


def test_trial_prints_configuration_and_reports(
    tune: Tune, listing: Callable[[], list[str]]
) -> None:
    output = tune("trial", DIGITS, *SMALL, "--set", "fixed.epochs=2").out.splitlines()
    config = json.loads(output[0])
    assert (config["num_layers"], config["batch_size"], config["epochs"]) == (1, 128, 2)
    assert set(config) == {
        *("epochs", "num_layers", "batch_size", "hidden_units"),
        *("learning_rate", "weight_decay", "dropout", "init_seed"),
    }
    assert [line.split()[:3:2] for line in output[1:]] == [["step", "accuracy"]] * 2
    assert [line.split()[1] for line in output[1:]] == ["1", "2"]
    assert listing() == []
    again = tune("trial", DIGITS, *SMALL, "--set", "fixed.epochs=2").out.splitlines()
    assert [_untimed(line) for line in again] == [_untimed(line) for line in output]


def test_trial_without_a_value_of_the_metric_exits_with_1(tune: Tune) -> None:
    tune.write("own.py", OWN)
    tune.write("own.yaml", OWN_SWEEP)
    assert tune("trial", "own.yaml", "--set", "space.value=1.5").code == 0
    said = tune("trial", "own.yaml", "--set", "space.value=.nan", code=1)
    assert said.out.splitlines()[1].startswith("step 1  score nan")
    assert said.err == "no report has a value of score (valid: other)\n"


def test_trial_has_as_many_threads_as_a_worker(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # restored at the end
    monkeypatch.delenv("OMP_NUM_THREADS")
    tune.write("own.py", "import os\n" + OWN.replace("1}", 'int(os.environ["OMP_NUM_THREADS"])}'))
    file = tune.write("own.yaml", OWN_SWEEP)
    output = tune("trial", file, "--set", "resources.cpus_per_worker=3").out
    assert output.endswith("other 3\n")


def test_trial_of_a_program_that_fails_says_why(tune: Tune) -> None:
    own = OWN_SWEEP.replace("trainable: own.py:Own", "command: [sh, -c, 'exit 3', '{value}']")
    tune.write("own.yaml", own)
    assert tune("trial", "own.yaml", code=1).err == "the program exited with code 3\n"


def test_trial_resumes_in_its_folder(tune: Tune) -> None:
    args = ["trial", DIGITS, *SMALL, "--folder", "kept", "--set", "checkpoint.every=1"]
    folder = tune.cwd / "kept"
    first = tune(*args, "--set", "fixed.epochs=2").out.splitlines()
    assert [line.split()[1] for line in first[1:-1]] == ["1", "2"]
    assert first[-1] == f"kept in {folder}"
    verify(folder / "checkpoints" / "step_00000002")
    more = tune(*args, "--set", "fixed.epochs=4").out.splitlines()
    assert more[1] == f"resuming at step 2, in {folder}"
    assert [line.split()[1] for line in more[2:-1]] == ["3", "4"]
    assert tune(*args, "--set", "fixed.epochs=4").err == ""  # complete: exit code 0


@pytest.mark.slow
def test_workers_are_ranks_that_train_together(tune: Tune) -> None:
    args = ["trial", DIGITS, *SMALL, "--set", "fixed.epochs=1", "--folder", "kept"]
    tune(*args, "--workers", "2", "--device", "cpu")
    found = verify(tune.cwd / "kept" / "checkpoints" / "step_00000001").files
    assert {"rng_0.json", "rng_1.json"} <= set(found)
    assert "batch_size" in tune.refused(*args, "--workers", "3", "--set", "space.batch_size=64")


def _untimed(line: str) -> list[str]:
    return [word for word in line.split("  ") if "_per_second" not in word]


LOOP = """
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist


def loop(config):
    context = ray.train.get_context()
    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    ranks = torch.ones(())
    dist.all_reduce(ranks)
    model(torch.ones(1, 2)).sum().backward()
    mine = context.get_world_rank() + config["x"] * ranks.item()
    ray.train.report({"loss": mine, "size": context.get_world_size()})
"""
LOOP_SWEEP = """
name: t
trainable: loops.py:loop
metric: loss
space: {x: {uniform: [0, 9]}}
scheduler: {name: none}
budget: {trials: 1}
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_ray_train_loop_has_a_process_group_without_ray(tune: Tune, ranks: int) -> None:
    tune.write("loops.py", LOOP)
    file = tune.write("t.yaml", LOOP_SWEEP)
    args = ["--set", "space.x=3", "--workers", str(ranks), "--device", "cpu", "--folder", "kept"]
    tune("trial", file, *args)
    (report,) = read_reports(TrialPaths(tune.cwd / "kept"))
    assert report.metrics == {"loss": 3.0 * ranks, "size": ranks}


def test_errors_of_user_code_show_its_lines_alone(tune: Tune) -> None:
    tune.write("own.py", OWN.replace('config.value, "other"', "'text', \"other\""))
    tune.write("own.yaml", OWN_SWEEP)
    error = tune("trial", "own.yaml", code=1).err
    assert "own.py" in error
    assert "trainables/" not in error
    assert error.splitlines()[-1].startswith("TypeError: metric score is 'text'")
