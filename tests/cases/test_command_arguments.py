"""Values, names and switches of any kind reach a command's program as they are, or are refused with
advice that works."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.command import fill, option_words
from tests.user_code.conftest import run_command
from tuning.controller.preflight.checks import preflight

SCRIPT = """
import argparse

p = argparse.ArgumentParser()
p.add_argument("--use_bias", type=bool)
p.add_argument("--lr")
p.parse_args()
"""


def problems(folder: Path, command: str, space: str, script: str = SCRIPT) -> list[str]:
    """The messages about a sweep file."""
    (folder / "train.py").write_text(script)
    file = folder / "s.yaml"
    file.write_text(
        f"name: s\ncommand: [python, train.py, {command}]\nmetric: loss\n{space}\n"
        "scheduler: {name: none}\nbudget: {trials: 1}\n"
    )
    try:
        preflight(load_sweep(file), files=True)
    except UserError as e:
        return list(e.problems)
    return []


NUMBERS = st.floats(allow_nan=False).map(json.dumps)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(st.one_of(NUMBERS, TEXTS))
def test_every_value_is_read_by_argparse(text: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shift")
    args = option_words("shift", text)
    for command in (["{args}"], ["--shift", "{shift}"], ["--shift={shift}"]):
        given = fill(command, {"shift": text}, args)
        assert parser.parse_args(given).shift == text


def test_short_option_takes_its_value_and_other_words_stay() -> None:
    assert fill(["-s", "{a}"], {"a": "-1e-05"}, []) == ["-s-1e-05"]
    assert fill(["--x", "{a}", "-0.5", "{a}"], {"a": "-0.5"}, []) == ["--x", "-0.5"] * 1 + [
        "-0.5",
        "-0.5",
    ]


def test_names_with_dashes_are_placeholders_beside_the_defaults_of_a_shell() -> None:
    values = {"num-epochs": "3", "model.hidden-size": "8"}
    command = ["{num-epochs}", "h={model.hidden-size}", "{{num-epochs}}", "echo ${HOME-none}"]
    assert fill(command, values, []) == ["3", "h=8", "{num-epochs}", "echo ${HOME-none}"]


@pytest.mark.parametrize("name", ["learning-rate", "lr", "1st", "top/k", "warm up"])
def test_advice_for_a_parameter_that_reaches_no_program_is_accepted(
    tmp_path: Path, name: str
) -> None:
    space = f"space: {{'{name}': {{uniform: [0, 1]}}}}"
    script = "import sys; print(sys.argv)"
    (found,) = problems(tmp_path, "--", space, script)
    advised = re.findall(r"'(\{.*?\})'", found)
    assert "{args}" in advised
    assert (f"{{{name}}}" in advised) is (name in ("learning-rate", "lr"))
    for word in advised:
        assert problems(tmp_path, f"'{word}'", space, script) == []
    (variable,) = re.findall(r"\$(\w+)", found)
    assert problems(tmp_path, "--", space, f"import os; os.environ['{variable}']") == []


def test_formula_with_a_dash_is_refused_with_a_name_that_it_can_have(tmp_path: Path) -> None:
    space = "space: {num-epochs: {randint: [1, 9]}, half: '= num-epochs / 2'}"
    (found,) = problems(tmp_path, "'{args}'", space, "pass")
    assert found.endswith('write param("num-epochs")')
    quoted = space.replace("= num-epochs", '= param("num-epochs")')
    assert problems(tmp_path, "'{args}'", quoted, "pass") == []


@pytest.mark.parametrize("command", ["'{args}'", "--use_bias, '{use_bias}'", "'--use={use_bias}'"])
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ("space: {use_bias: {grid_search: [true, false]}}", True),
        ("space: {lr: {choice: [1]}}\nfixed: {use_bias: 0}", True),
        ("space: {lr: {choice: [1]}}\nfixed: {use_bias: true}", False),
    ],
)
def test_type_bool_is_refused_unless_every_value_is_true(
    tmp_path: Path, command: str, given: str, refused: bool
) -> None:
    command += ", '--lr={lr}'" * ("lr:" in given and "args" not in command)
    found = problems(tmp_path, command, given)
    assert [
        bool(re.search("type=bool of --use_bias.* true for every text", each)) for each in found
    ] == ([True] * refused)
    if refused:
        (advice,) = re.findall("there write type=(.*)", found[0])
        script = SCRIPT.replace("type=bool", f"type={advice}")
        assert problems(tmp_path, command, given, script) == []


@pytest.mark.parametrize(
    ("imports", "words"),
    [
        ("from absl import app, flags", ["--amp=false", "--lr", "0.1"]),
        ("import fire", ["--amp=False", "--lr", "0.1"]),
        ("import argparse, fire", ["--amp", "false", "--lr", "0.1"]),
    ],
)
def test_args_gives_a_boolean_as_the_parser_of_the_script_reads_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], imports: str, words: list[str]
) -> None:
    script = tmp_path / "train.py"
    report = "from tune_report import report; import sys; print(sys.argv[1:]); report(loss=1)"
    script.write_text(f"if 0:\n    {imports}\n{report}\n")
    run_command(tmp_path / "t", ["python", str(script), "{args}"], {"amp": False, "lr": 0.1})
    assert str(words) in capfd.readouterr().out


def test_two_parameters_in_one_variable_are_refused(tmp_path: Path) -> None:
    space = "space: {weight-decay: {uniform: [0, 1]}, weight_decay: {uniform: [0, 1]}}"
    script = "import os; os.environ['TUNE_PARAM_WEIGHT_DECAY']"
    (found,) = problems(tmp_path, "--", space, script)
    assert "TUNE_PARAM_WEIGHT_DECAY is that of weight-decay" in found


def test_python_is_that_of_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "bin"
    other.mkdir()
    for name in ("python", "python3"):
        (other / name).write_text("#!/bin/sh\nexit 7\n")
        (other / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:/usr/bin:/bin")
    code = "import search_spaces; from tune_report import report; report(loss=1)"
    for command in (
        ["python", "-c", code],
        ["python3", "-c", code],
        ["sh", "-c", f"python -c '{code}'"],
    ):
        assert run_command(tmp_path / "t", command).curve == {1: {"loss": 1.0}}
