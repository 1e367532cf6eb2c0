"""The program: its commands, help, exit codes, and shell completion."""

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
from tests.search_spaces.examples import BAD, BAD_FOLDER
from tests.test_imports import COMMANDS as LIGHT_COMMANDS
from tests.test_imports import assert_light
from tuning.cli.app import GROUPS, make_app

COMMANDS = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]


def run_program(
    *command: str | Path, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, check=False)


def test_ls_show_and_best_import_neither_ray_nor_torch(tune: Tune) -> None:
    tune.sweep("mine")
    commands = ("ls", "show mine", "show mine t0000", "best mine --json")
    assert_light(LIGHT_COMMANDS, *commands, cwd=tune.cwd)


def test_program_writes_everything_before_its_quick_end(tune: Tune) -> None:
    tune.sweep("mine")
    whole = tune.sweep("lost").trial("t0001")
    tune_program = (sys.executable, "-m", "tuning")
    shown = run_program(*tune_program, "show", "mine", cwd=tune.cwd)
    assert (shown.returncode, shown.stdout) == (0, tune("show", "mine").out)
    whole.reports.unlink()
    listed = run_program(*tune_program, "ls", cwd=tune.cwd)
    assert listed.returncode == 3
    assert "lost: incomplete: t0001/reports.jsonl" in listed.stderr
    closed = run_program("sh", "-c", f'"{sys.executable}" -m tuning ls >&-', cwd=tune.cwd)
    assert (closed.returncode, closed.stderr) == (3, listed.stderr)


def test_help_lists_all_commands_in_groups(tune: Tune) -> None:
    panels = tune("--help").out.split("╭─ ")[2:]
    shown = {p.partition(" ─")[0]: re.findall(r"^│ (\w+) ", p, re.MULTILINE) for p in panels}
    assert shown == {group: list(commands) for group, commands in GROUPS.items()}
    assert [name for names in shown.values() for name in names] == list(COMMANDS)


def test_help_has_a_line_for_each_command_at_80_columns(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = tune("--help").out
    described = output[output.index("╭─ Run") :]
    assert len(re.findall(r"^│ ", described, re.MULTILINE)) == len(COMMANDS)
    assert "<bool>" not in output + tune("best", "--help").out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_parses(tune: Tune, name: str) -> None:
    output = " ".join(tune(name, "--help").out.split())
    found = re.search(rf"Example: tune {name}( [^╭]*)?(?=╭)", output)
    assert found, output
    # the arguments as the shell passes them: without redirections
    args = shlex.split((found[1] or "").partition(">")[0])
    COMMANDS[name].make_context(name, args)


def test_no_arguments_print_the_help(tune: Tune) -> None:
    assert "tune [OPTIONS] COMMAND" in tune(code=2).out


def test_unknown_command_suggests_the_nearest(tune: Tune) -> None:
    assert "Did you mean 'resume'" in tune("resum", code=2).err


def test_script_and_module_print_the_same_version() -> None:
    script = run_program(Path(sys.executable).parent / "tune", "--version")
    module = run_program(sys.executable, "-m", "tuning", "--version")
    assert re.fullmatch(r"tune-platform \d+\.\d+\.\d+\n", script.stdout)
    assert (script.stdout, script.returncode) == (module.stdout, module.returncode)


def test_bad_file_exits_with_code_2_and_writes_nothing(tmp_path: Path) -> None:
    expected = dict(BAD)["many_mistakes.yaml"]
    program = sys.executable, "-m", "tuning", "run", BAD_FOLDER / "many_mistakes.yaml"
    done = run_program(*program, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert list(tmp_path.iterdir()) == []


def test_unknown_sweep_exits_with_code_2(tune: Tune, tmp_path: Path) -> None:
    output = f"no sweep 'llm' in {tmp_path}: it holds no sweep; start one with tune run FILE\n"
    assert tune.refused("best", "llm", "--storage", tmp_path) == output


def test_schema_prints_the_shipped_file(tune: Tune) -> None:
    shipped = ROOT / "search_spaces" / "sweep.schema.json"
    assert tune("schema").out == shipped.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("tune sh", {"show"}),
        ("tune res", {"restore", "resume"}),
        ("tune best --js", {"--json"}),
        ("tune average mine --method g", {"greedy"}),
        ("tune show m", {"mine", "mine-2"}),
        ("tune show mine t0000", {"t0000"}),
        ("tune resume mine --set budget.tr", {"budget.trials="}),
        ("tune resume mine --set space.o", {"space.opt.k="}),
        ("tune describe dig", {"digits"}),
    ],
)
def test_bash_completion(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, words: str, completed: set[str]
) -> None:
    for name in ("mine", "mine", "other"):
        tune.sweep(name, done=name == "mine" and "t0000" in words)
    index = str(len(words.split()) - 1)
    env = {"_TUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": index}
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    assert set(tune().out.split()) == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(tune: Tune, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_TUNE_COMPLETE", f"source_{shell}")
    assert f"_TUNE_COMPLETE=complete_{shell}" in tune().out


def test_log_level_and_verbose(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = tune.sweep("mine")
    command = sys.executable, "-m", "tuning"
    verbose = run_program(*command, "--verbose", "resume", paths.root)
    assert " INFO tuning.controller.events: sweep mine in " in verbose.stderr
    silent = run_program(*command, "resume", paths.root)
    assert "INFO" not in silent.stderr
    monkeypatch.setenv("LOG_LEVEL", "loud")
    assert tune.refused("ls").startswith("LOG_LEVEL LOUD: no such level (valid: ")
