"""How the program starts: at once, with help that works, under every name that it has."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from tests.cli.conftest import ROOT, Tune
from tests.test_imports import COMMAND, assert_light
from tuning.cli.app import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def start(*command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=env, check=False
    )


def test_looking_needs_neither_ray_nor_torch(tune: Tune) -> None:
    tune.sweep("mine")
    for args in (["ls"], ["show", "mine"], ["show", "mine", "t0000"], ["best", "mine", "--json"]):
        assert_light(COMMAND, *args, cwd=tune.cwd)


def test_all_commands_are_there(tune: Tune) -> None:
    named = (
        "run resume add stop pause plan trial ls show best ui report compare reproduce sync fetch "
        "average export generate predict schema"
    )
    assert list(COMMANDS) == named.split()
    said = tune("--help").out
    assert all(re.search(rf"^│ {name} ", said, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_parses(tune: Tune, name: str) -> None:
    said = " ".join(tune(name, "--help").out.split())
    found = re.search(rf"Example: tune {name}( [^╭]*)?(?=╭)", said)
    assert found, said
    # what a shell would hand over: without redirections
    args = shlex.split((found[1] or "").partition(">")[0])
    COMMANDS[name].make_context(name, args)


def test_no_arguments_show_the_help(tune: Tune) -> None:
    assert "tune [OPTIONS] COMMAND" in tune(code=2).out


def test_an_unknown_command_names_the_nearest(tune: Tune) -> None:
    assert "Did you mean 'resume'" in tune("resum", code=2).err


def test_installed_script_and_module_are_the_same_program() -> None:
    script = start(Path(sys.executable).parent / "tune", "--version")
    module = start(sys.executable, "-m", "tuning", "--version")
    assert re.fullmatch(r"tune-platform \d+\.\d+\.\d+\n", script.stdout)
    assert (script.stdout, script.returncode) == (module.stdout, module.returncode)


def test_schema_is_the_shipped_file(tune: Tune) -> None:
    shipped = ROOT / "search_spaces" / "sweep.schema.json"
    assert tune("schema").out == shipped.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tune sh", {"show"}),
        ("tune res", {"resume"}),
        ("tune best --js", {"--json"}),
        ("tune average mine --method g", {"greedy"}),
        ("tune show m", {"mine", "mine-2"}),
    ],
)
def test_bash_completes(tune: Tune, words: str, completed: set[str]) -> None:
    tune.sweep("mine", done=False)
    tune.sweep("mine", done=False)
    tune.sweep("other", done=False)
    done = start(
        sys.executable,
        "-m",
        "tuning",
        _TUNE_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert set(done.stdout.split()) == completed, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = start(sys.executable, "-m", "tuning", _TUNE_COMPLETE=f"source_{shell}")
    assert f"_TUNE_COMPLETE=complete_{shell}" in done.stdout, done.stderr
