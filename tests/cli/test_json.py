"""`--json`: a versioned document on stdout, and an error as one object on stderr."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.cli.conftest import Tune
from tests.cli.test_app import COMMANDS
from tuning.cli.json_output import error_json, print_json

LOOKS: dict[tuple[str, ...], set[str]] = {
    ("ls",): {"storage", "sweeps"},
    ("show", "mine"): {"sweep", "state", "winner", "trials", "cost", "problems"},
    ("show", "mine", "t0000"): {"id", "state", "params", "reports", "checkpoints", "attempts"},
    ("best", "mine"): {"sweep", "trial", "value", "params", "why"},
    ("compare", "mine", "mine"): {"objectives", "sweeps", "pages"},
    ("report", "mine"): {"pages"},
    ("queue",): {"storage", "jobs", "problems"},
    ("describe", "digits"): {"trainable", "hyperparameters"},
}
ELSEWHERE = {"evaluate", "plan", "doctor", "probe", "logs", "transfer"}
"""Commands whose documents other tests read: they need Ray, train, or print one for each line."""


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_commands_print_one_versioned_document(tune: Tune, command: tuple[str, ...]) -> None:
    tune.sweep("mine")
    found = strict(tune(*command, "--json").out)
    assert found["version"] == 1
    assert found.keys() >= LOOKS[command]


def test_every_command_with_the_option_is_looked_at() -> None:
    offered = {
        name for name, one in COMMANDS.items() if any("--json" in p.opts for p in one.params)
    }
    assert offered == {command[0] for command in LOOKS} | ELSEWHERE


def test_documents_say_what_the_tables_say(tune: Tune) -> None:
    paths = tune.sweep("mine")
    winner = tune.best("mine")
    shown = strict(tune("show", "mine", "--json").out)
    assert shown["trials"][0]["id"] == winner["trial"] == shown["winner"]
    assert len(shown["trials"]) == len(paths.trial_ids())
    [listed] = strict(tune("ls", "--json").out)["sweeps"]
    assert listed["name"] == "mine"
    assert listed["state"] == shown["state"] == "done"
    assert listed["best"] == {winner["metric"]: winner["value"]}


def test_logs_print_a_document_for_each_line(tune: Tune) -> None:
    log = tune.sweep("mine").trial("t0000").log(1, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\ntwo\x1b[2J\n")
    lines = [strict(line) for line in tune("logs", "mine", "t0000", "--json").out.splitlines()]
    assert [line["line"] for line in lines] == ["one", "two\x1b[2J"]
    assert lines[0] | {"line": ""} == {"version": 1, "trial": "t0000", "rank": 0, "line": ""}


def test_number_that_json_lacks_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"values": [math.nan, {"deep": math.inf}, 0.5]})
    assert strict(capsys.readouterr().out)["values"] == [None, {"deep": None}, 0.5]


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("best", "mine"), "no sweep 'mine'"),
        (("show", "mine", "--csv"), "--csv"),
        (("show", "mine", "--bad"), "No such option"),
        (("compare",), "Missing argument"),
        (("run", "sweep.yaml"), "--json"),
    ],
)
def test_error_is_one_object_and_has_the_same_exit_code(
    tune: Tune, args: tuple[str, ...], word: str
) -> None:
    done = tune(*args, "--json", code=2)
    assert done.out == ""
    assert word in strict(done.err)["error"]


def test_error_in_a_file_names_place_and_hint(tune: Tune) -> None:
    tune.write("bad.yaml", "name: bad\ntrainable: digits\nmetrics: loss\nmode: maximum\n")
    found = strict(tune("plan", "bad.yaml", "--json", code=2).err)
    unknown = next(one for one in (found, *found["more"]) if one["line"] == 3)
    assert unknown["error"].startswith("metrics: ")
    assert unknown["file"] == "bad.yaml"
    assert unknown["hint"] == "did you mean 'metric'?"


@pytest.mark.parametrize(
    ("problem", "file", "hint"),
    [
        ("--port 5000: taken; choose another", None, "choose another"),
        ("/a/state.json: not readable (torn)", "/a/state.json", None),
        ("space.lr: unknown", None, None),
    ],
)
def test_parts_of_an_error(problem: str, file: str | None, hint: str | None) -> None:
    found = strict(error_json([problem]))
    assert (found["file"], found["hint"]) == (file, hint)


def test_damage_is_an_error_beside_the_document(tune: Tune) -> None:
    tune.sweep("mine").trial("t0000").reports.unlink()
    for command in (("ls",), ("show", "mine")):
        done = tune(*command, "--json", code=3)
        assert strict(done.out)["version"] == 1
        assert "t0000/reports.jsonl" in strict(done.err)["error"]
