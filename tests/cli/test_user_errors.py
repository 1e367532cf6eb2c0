"""Names that do not exist and damaged files: one line on stderr, exit code 2."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import DIGITS, Tune, add_checkpoint

LOOP = """\
name: mine
trainable: my_loop.py:train
metric: loss
space: {lr: {uniform: [0, 1]}}
scheduler: {name: none}
budget: {trials: 2}
"""


def test_run_checks_the_name_of_the_sweep(tune: Tune, listing: Callable[[], list[str]]) -> None:
    taken = tune.sweep("mine").root
    before = listing()
    assert f"--name mine: {taken} exists" in tune.refused("run", DIGITS, "--name", "mine")
    for name in ("../mine", "a b", "", "x" * 65):
        assert tune.refused("run", DIGITS, "--name", name).startswith("--name: must be text of")
    assert listing() == before


def test_unusable_storage(tune: Tune) -> None:
    file = tune.write("file", "")
    said = tune.refused("run", DIGITS, "--storage", file)
    assert f"storage {file}: cannot create a folder there (Not a directory)" in said
    assert f"{tune.cwd}/nowhere: no such folder" in tune.refused("ls", "--storage", "nowhere")


def test_storage_that_cannot_be_written_to_names_the_same_command(tune: Tune) -> None:
    tune.sweep("mine").report.mkdir(parents=True)
    assert "; move the folder away, then run the command again\n" in tune.refused("report", "mine")


@pytest.mark.parametrize("command", ["resume", "show", "best", "ui", "average", "export"])
def test_unknown_sweep(tune: Tune, command: str) -> None:
    root = tune.cwd / "sweeps"
    assert f"no sweep 'mine' in {root}: it holds no sweep" in tune.refused(command, "mine")
    tune.sweep("mine", done=False)
    tune.sweep("other", done=False)
    assert tune.refused(command, "zzz") == f"no sweep 'zzz' in {root} (valid: mine, other)\n"
    for near in ("mien", "../mine"):
        assert "(did you mean 'mine'?)" in tune.refused(command, near)


def test_unknown_trial_or_soup(tune: Tune) -> None:
    tune.sweep("mine", budget={"trials": 3})
    for args in (["show", "mine", "t3"], ["export", "mine", "--trial", "t3"]):
        assert tune.refused(*args) == "mine: no trial 't3'; it has t0000 to t0002\n"
    export = ["export", "mine", "--soup"]
    assert "no soup 'greedy-5'; make one with: tune av" in tune.refused(*export, "greedy-5")
    (tune.cwd / "sweeps/mine/results/soups/greedy-3").mkdir(parents=True)
    assert "no soup 'greedy-5' (did you mean 'greedy-3'?)" in tune.refused(*export, "greedy-5")
    assert "no soup '..' (valid: greedy-3)" in tune.refused(*export, "..")
    assert "exclude each other" in tune.refused(*export, "greedy-3", "--trial", "t0000")


def test_commands_name_the_model_that_is_missing(tune: Tune) -> None:
    paths = tune.sweep("mine", done=False, budget={"trials": 3})
    for command in ("best", "export"):
        said = tune.refused(command, "mine")
        assert f"{paths.root}: none of 0 trials has a finite 'loss' yet" in said
    paths = tune.sweep("done", budget={"trials": 3})
    assert f"{paths.root}: no trial has both a finite 'loss' and" in tune.refused("average", "done")
    winner = tune.best("done")["trial"]
    assert f"done: trial {winner} has no intact checkpoint" in tune.refused("export", "done")
    add_checkpoint(paths, "t0001", 1)
    assert "done: only t0001 has a finite 'loss'" in tune.refused("average", "done")


def test_models_of_a_ray_train_loop_cannot_be_read(tune: Tune) -> None:
    script = tune.write("my_loop.py", "def train(config): report(config)\n")
    tune.sweep("mine", trainable="my_loop.py:train")
    said = tune.refused("average", "mine")
    assert f"trainable {script}:train: cannot average" in said
    assert "user_code.evaluate" in said
    tune.write("mine.yaml", LOOP)
    tune.write("my_loop.py", "def train(config): TorchTrainer(report, config['lr']).fit()\n")
    said = tune("trial", "mine.yaml", code=2).err
    assert "my_loop.py:train: a function that builds a trainer runs under Ray only" in said


def test_damaged_files_are_named(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 2})
    record = paths.trial("t0001").record
    record.write_text('{"id": "t0001", ')
    output = f"{record}: not readable (Invalid JSON: EOF"
    assert tune("show", "mine", "t0001", code=3).err.startswith(output)
    assert tune("show", "mine", "t0000", code=3).out.startswith("t0000 ")

    paths.state.write_text('{"key": "a"}')
    said = tune("resume", "mine", code=3).err
    assert "its state.json, which says who made it, is missing" in said
    out = tune("resume", "mine", "--trust").out
    assert f"repaired: {paths.state}: not readable" in out
    assert f"repaired: {output}" in out
    assert "(kept as trial.json.damaged); rebuilt from the study" in out
    assert tune("show", "mine").code == 0

    paths.spec.write_text("name: [mine\n")
    for command in ("show", "best", "average", "export", "resume"):
        assert tune.refused(command, "mine").startswith(f"{paths.spec}:2: not valid YAML: ")


@pytest.mark.parametrize("command", [("certs", "taken", "10.0.0.1"), ("monitor", "taken")])
def test_file_where_a_folder_is_to_be_is_refused(tune: Tune, command: tuple[str, ...]) -> None:
    tune.write("taken", "mine")
    assert "'taken' is a file" in tune.refused(*command)
    assert (tune.cwd / "taken").read_text() == "mine"
