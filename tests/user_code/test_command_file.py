"""`command` in a sweep file: mistakes are known before anything starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import dump_sweep, load_sweep
from search_spaces.spec.command import fill, name_of, parse_name
from trainables.registry import code_folder, resolve
from tuning.controller.preflight.checks import preflight
from tuning.search.auto import choose_scheduler

SWEEP = """\
name: s
command: [python, train.py, --lr, "{lr}"]
metric: loss
space: {lr: {uniform: [0, 1]}}
scheduler: {name: none}
budget: {trials: 1}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script and files that are no program."""
    (tmp_path / "train.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("pass\n")
    (tmp_path / "reads.py").write_text("import os\nprint(os.environ['TUNE_PARAM_LR'])\n")
    (tmp_path / "train.sh").write_text("true\n")
    monkeypatch.chdir("/")
    return tmp_path


def problem(folder: Path, old: str, new: str) -> str:
    """The message about a changed sweep file; empty if there is none."""
    file = folder / "s.yaml"
    file.write_text(SWEEP.replace(old, new))
    try:
        preflight(load_sweep(file), files=True)
    except UserError as e:
        assert len(e.problems) == 1
        return e.problems[0]
    return ""


COMMAND = '[python, train.py, --lr, "{lr}"]'
WRONG = {
    "name": (COMMAND, '[python, "{lrr}"]', r"^s.yaml:2: command: {lrr} is not a .*mean 'lr'"),
    "args": (COMMAND, '[python, "-x={args}"]', r"^s.yaml:2: command: {args} stands alone"),
    "empty": (COMMAND, "[]", r"^s.yaml:2: command: "),
    "blank": (COMMAND, "['']", r"^s.yaml:2: command: begins with the name of a program"),
    "both": ("metric:", "trainable: digits\nmetric:", r"command: either trainable or command"),
    "neither": (f"command: {COMMAND}\n", "", r"command: either trainable or command is required"),
    "path": (COMMAND, '[nopython, "{lr}"]', r"^s.yaml:2: command: there is no program 'nopython'"),
    "file": (COMMAND, '[./none, "{lr}"]', r"^s.yaml:2: command: there is no program ./none$"),
    "script": (
        COMMAND,
        '[python, trian.py, "{lr}"]',
        r"^s.yaml:2: command: there is no file trian",
    ),
    "mode": (COMMAND, '[./train.sh, "{lr}"]', r"train.sh is not executable; .*\[sh, train.sh\]$"),
    "unused": (COMMAND, "[python, train.py]", r"^s.yaml:4: space.lr: reaches the program in no"),
    "workers": ("budget:", "resources: {workers: {max: 2}}\nbudget:", r"cannot change its number"),
    "pattern": (
        "budget:",
        "report_from: {stdout: {loss: 'a+'}}\nbudget:",
        r"stdout.loss: needs one",
    ),
    "slow": (
        "budget:",
        "report_from: {stdout: {loss: '(a'}}\nbudget:",
        r"not a regular expression",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistake_is_one_line(name: str, folder: Path) -> None:
    old, new, message = WRONG[name]
    found = problem(folder, old, new)
    assert re.search(message.replace("{", r"\{").replace("}", r"\}"), found), found


@pytest.mark.parametrize(
    "command",
    [
        COMMAND,
        '[python, train.py, "{args}"]',
        "[python, reads.py]",
        '[sh, train.sh, "{lr}", "{{nothing}}", "{print $1}"]',
    ],
)
def test_right_command_has_no_problem(command: str, folder: Path) -> None:
    assert problem(folder, COMMAND, command) == ""


def test_population_may_copy_checkpoints_of_a_command(folder: Path) -> None:
    assert problem(folder, "{name: none}", "{name: pbt, max_t: 9}") == ""


def test_files_become_absolute_and_are_the_source(folder: Path) -> None:
    (folder / "s.yaml").write_text(SWEEP.replace("[python,", "[python, --data=train.sh,"))
    spec = load_sweep(folder / "s.yaml").spec
    wanted = ["python", f"--data={folder}/train.sh", f"{folder}/train.py", "--lr", "{lr}"]
    assert spec.command == wanted
    trainable = resolve(spec.trainable)
    assert trainable.source().keys() == {"command", "train.sh", "train.py", "helper.py"}
    assert code_folder(spec.trainable) == folder
    assert trainable.name == spec.trainable == name_of(wanted)
    assert parse_name(trainable.name) == wanted


def test_frozen_file_is_equal(folder: Path) -> None:
    (folder / "s.yaml").write_text(SWEEP)
    spec = load_sweep(folder / "s.yaml").spec
    (folder / "frozen.yaml").write_text(dump_sweep(spec))
    assert load_sweep(folder / "frozen.yaml", frozen=True).spec == spec


def test_seed_is_taken_by_name() -> None:
    assert resolve(name_of(["a", "{seed}"])).with_seed({"lr": 1}, 7) == {"lr": 1}
    assert resolve(name_of(["a"])).with_seed({"seed": 1}, 7) == {"seed": 7}
    with pytest.raises(UserError, match="takes no seed"):
        resolve(name_of(["a"])).with_seed({"lr": 1}, 7)


def test_auto_chooses_a_scheduler_without_pauses(folder: Path) -> None:
    (folder / "s.yaml").write_text(SWEEP.replace("{name: none}", "{name: auto, max_t: 9}"))
    assert choose_scheduler(load_sweep(folder / "s.yaml").spec).name == "asha"


def test_fill_replaces_names() -> None:
    command = ["{a}/{b.c}", "{args}", "{{a}}", "${a}"]
    assert fill(command, {"a": "1", "b.c": "2"}, ["--x", "y"]) == ["1/2", "--x", "y", "{a}", "$1"]
    with pytest.raises(KeyError):
        fill(["{d}"], {}, [])


PARSER = """
import argparse

parser = argparse.ArgumentParser()
group = parser.add_argument_group("optimizer")
group.add_argument("-l", "--lr", type=float, required=True)
group.add_argument("--betas", nargs="+")
group.add_argument("--nesterov", action="store_true")
group.add_argument("--fused", action=argparse.BooleanOptionalAction)
parser.add_argument("data")
parser.add_argument("more", nargs="*")
args = parser.parse_args()
"""
ARGUMENTS = {
    "--lr, '{lr}', data": "",
    "-l, '{lr}', --betas, '1', '-2', --no-fused, --nest, data, a, b": "",
    "'{lr}', --lr=1": "",
    "'{args}', data": "",
    "--lrate, '{lr}', data": "s.yaml:2: command: train.py has no option --lrate (did you mean '--l",
    "'{lr}'": "s.yaml:2: command: train.py requires the option -l",
    "-l, '{lr}'": "s.yaml:2: command: train.py requires the argument data",
    "-l, '{lr}', data, --nesterov, '{lr}'": "s.yaml:2: command: train.py refuses it: unrecognized",
    "-l, '{lr}', --betas, '1', '2'": "s.yaml:2: command: train.py requires the argument data",
}


@pytest.mark.parametrize("given", ARGUMENTS)
def test_arguments_are_those_of_the_script(folder: Path, given: str) -> None:
    (folder / "train.py").write_text(PARSER)
    found = problem(folder, '--lr, "{lr}"', given)
    assert ARGUMENTS[given] in found
    assert bool(found) == bool(ARGUMENTS[given])


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ("fused", "s.yaml:3: fixed.fused: --fused of train.py takes no value, but {args}"),
        ("beta", ""),
        ("epochs", "s.yaml:3: fixed.epochs: train.py has no option --epochs (valid: --betas, "),
    ],
)
def test_parameters_among_args_are_options_of_the_script(
    folder: Path, fixed: str, message: str
) -> None:
    (folder / "train.py").write_text(PARSER)
    command = "[python, train.py, '{args}', data]"
    assert message in problem(folder, COMMAND, f"{command}\nfixed: {{{fixed}: 1}}")


UNCLEAR = {
    "unknown options": ("parse_args", "parse_known_args"),
    "computed name": ('"data"', "data"),
    "two parsers": ("group =", "other = argparse.ArgumentParser()\ngroup ="),
    "handed on": ("args =", "add_more(parser)\nargs ="),
    "parents": ("ArgumentParser()", "ArgumentParser(parents=[p])"),
    "another parser": ("argparse.Arg", "transformers.HfArg"),
    "syntax": ("args =", "args = ="),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_nothing_is_said_of_arguments_that_the_source_does_not_show(
    folder: Path, name: str
) -> None:
    (folder / "train.py").write_text(PARSER.replace(*UNCLEAR[name]))
    assert problem(folder, "--lr,", "--none,") == ""
