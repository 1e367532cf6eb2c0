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
    assert tune.refused("run", DIGITS, "--name", "mine") == (
        f"--name mine: {taken} exists; continue it (tune resume mine), or choose another name\n"
    )
    for name in ("../mine", "a b", "", "x" * 65):
        assert tune.refused("run", DIGITS, "--name", name).startswith(
            "--name: must be text of at most 64 characters that matches "
            "^[A-Za-z0-9][A-Za-z0-9._-]*$, got "
        )
    assert listing() == before


def test_unusable_storage(tune: Tune) -> None:
    file = tune.write("file", "")
    assert tune.refused("run", DIGITS, "--storage", file) == (
        f"storage {file}: cannot create a folder there (Not a directory); "
        "choose another with --storage DIR\n"
    )
    assert tune.refused("ls", "--storage", "nowhere") == (
        f"storage {tune.cwd}/nowhere: no such folder\n"
    )


@pytest.mark.parametrize("command", ["resume", "show", "best", "ui", "average", "export"])
def test_unknown_sweep(tune: Tune, command: str) -> None:
    root = tune.cwd / "sweeps"
    assert tune.refused(command, "mine") == (
        f"no sweep 'mine' in {root}: it holds no sweep; start one with tune run FILE\n"
    )
    tune.sweep("mine", done=False)
    tune.sweep("other", done=False)
    assert tune.refused(command, "zzz") == f"no sweep 'zzz' in {root} (valid: mine, other)\n"
    for near in ("mien", "../mine"):
        message = f"no sweep '{near}' in {root} (did you mean 'mine'?)\n"
        assert tune.refused(command, near) == message


def test_unknown_trial_or_soup(tune: Tune) -> None:
    tune.sweep("mine", budget={"trials": 3})
    output = "mine: no trial 't3'; it has t0000 to t0002\n"
    assert tune.refused("show", "mine", "t3") == output
    assert tune.refused("export", "mine", "--trial", "t3") == output
    assert tune.refused("export", "mine", "--soup", "greedy-5") == (
        "mine: no soup 'greedy-5'; make one with: tune average mine\n"
    )
    (tune.cwd / "sweeps/mine/results/soups/greedy-3").mkdir(parents=True)
    assert tune.refused("export", "mine", "--soup", "greedy-5") == (
        "mine: no soup 'greedy-5' (did you mean 'greedy-3'?)\n"
    )
    output = tune.refused("export", "mine", "--soup", "..")
    assert output == "mine: no soup '..' (valid: greedy-3)\n"
    assert tune.refused("export", "mine", "--trial", "t0000", "--soup", "greedy-3") == (
        "--trial and --soup exclude each other: one model to export\n"
    )


def test_best_and_export_without_a_winner(tune: Tune) -> None:
    root = tune.sweep("mine", done=False).root
    for command in ("best", "export"):
        assert tune.refused(command, "mine") == (
            f"{root}: none of 0 trials has a finite 'loss' yet; see: tune show mine\n"
        )


def test_average_with_too_few_models(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 3})
    assert tune.refused("average", "mine") == (
        f"{paths.root}: no trial has both a finite 'loss' and an intact checkpoint with "
        "model.safetensors; see: tune show mine\n"
    )
    winner = tune.best("mine")["trial"]
    assert tune.refused("export", "mine") == (f"mine: trial {winner} has no intact checkpoint\n")
    add_checkpoint(paths, "t0001", 1)
    assert tune.refused("average", "mine") == (
        "mine: only t0001 has a finite 'loss' and an intact checkpoint, and an average needs two; "
        "export it: tune export mine\n"
    )


def test_models_of_a_ray_train_loop_cannot_be_read(tune: Tune) -> None:
    script = tune.write("my_loop.py", "def train(config): report(config)\n")
    tune.sweep("mine", trainable="my_loop.py:train")
    assert tune.refused("average", "mine") == (
        f"trainable {script}:train: cannot average the models of a Ray Train loop, which only it "
        "can score; name a function of yours that scores weights: tune resume SWEEP --set "
        "user_code.evaluate=script.py:function\n"
    )
    tune.write("mine.yaml", LOOP)
    assert tune("trial", "mine.yaml", code=2).err == (
        "trainable my_loop.py:train: a Ray Train loop runs under Ray only; "
        "try tune run FILE --set budget.trials=1\n"
    )


def test_damaged_files_are_named(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 2})
    record = paths.trial("t0001").record
    record.write_text('{"id": "t0001", ')
    output = (
        f"{record}: not a readable trial record "
        "(Invalid JSON: EOF while parsing a value at line 1 column 16)\n"
    )
    assert tune.refused("show", "mine", "t0001") == output
    assert tune("show", "mine", "t0000", code=3).out.startswith("t0000 ")

    paths.state.write_text('{"key": "a"}')
    assert "its state.json, which says who made it, is missing" in tune.refused("resume", "mine")
    out = tune("resume", "mine", "--trust").out
    state = f"{paths.state}: not readable ('started') (kept as state.json.damaged); "
    assert f"repaired: {state}" in out
    assert f"repaired: {output.strip()} (kept as trial.json.damaged); rebuilt from the study" in out
    assert tune("show", "mine").code == 0

    paths.spec.write_text("name: [mine\n")
    for command in ("show", "best", "average", "export", "resume"):
        assert tune.refused(command, "mine").startswith(f"{paths.spec}:2: not valid YAML: ")


@pytest.mark.parametrize("command", [("certs", "taken", "10.0.0.1"), ("monitor", "taken")])
def test_file_where_a_folder_is_to_be_is_refused(tune: Tune, command: tuple[str, ...]) -> None:
    tune.write("taken", "mine")
    assert "'taken' is a file" in tune.refused(*command)
    assert (tune.cwd / "taken").read_text() == "mine"
