"""Functions and classes that no module has are stored by value in the sweep folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from results.paths import SweepPaths
from results.records.spec_file import read_spec
from search_spaces.errors import UserError
from trainables.digits.config import Digits
from trainables.registry import resolve
from tuning.controller.preflight.trainables import code_problems
from tuning.python.by_value import name_of, store

NOTEBOOK = """
import json, sys
import tuning
from trainables import Trainable, TrainableConfig

FACTOR = 3

class Config(TrainableConfig):
    learning_rate: float = 0.1
    init_seed: int = 0

class Mine(Trainable[Config]):
    Config = Config

    def train(self, config, worker):
        for step in range(1, 4):
            worker.report(step=step, metrics={"loss": FACTOR * config.learning_rate / step})

    def evaluate(self, config, checkpoint, split, cache):
        return {}

def loop(config):
    reported = FACTOR * config["learning_rate"]
    return reported

storage, which = sys.argv[1:]
from tuning.api import create
sweep = tuning.Sweep(
    {"Mine": Mine, "loop": loop}[which], "loss", {"learning_rate": tuning.uniform(0.1, 0.2)},
    budget=tuning.Budget(trials=2), storage=storage, tracking={"name": "none"},
)
print(create(sweep._loaded).root)
"""


def made(tmp_path: Path, which: str) -> SweepPaths:
    """A sweep that a main script made."""
    script = tmp_path / "notebook.py"
    script.write_text(dedent(NOTEBOOK))
    command = [sys.executable, script, tmp_path / "sweeps", which]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return SweepPaths(Path(done.stdout.strip()))


def call(paths: SweepPaths, expression: str) -> object:
    """Evaluate with the stored `code`, in a process that never saw the script."""
    name = read_spec(paths).trainable
    program = f"from trainables.user_code.loader import load\ncode = load({name!r})\n"
    program += f"import json; print(json.dumps({expression}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_function_of_a_main_script_runs_elsewhere(tmp_path: Path) -> None:
    paths = made(tmp_path, "loop")
    (tmp_path / "notebook.py").unlink()
    assert call(paths, "code({'learning_rate': 2})") == 6
    moved = SweepPaths(Path(shutil.move(paths.root, tmp_path / "elsewhere")))
    (script,) = moved.code.glob("*.py")
    assert read_spec(moved).trainable == f"{script}:loop"
    assert 'FACTOR * config["learning_rate"]' in script.read_text()
    assert call(moved, "code({'learning_rate': 2})") == 6


def test_class_of_a_main_script_is_a_trainable(tmp_path: Path) -> None:
    paths = made(tmp_path, "Mine")
    trainable = resolve(read_spec(paths).trainable)
    assert trainable.Config.problems({"learning_rate": "x"})
    assert trainable.source()  # its digest is part of a trial's identity


def test_changed_code_is_refused(tmp_path: Path) -> None:
    paths = made(tmp_path, "loop")
    script = next(paths.code.glob("*.py"))
    script.write_text(script.read_text() + "\nprint('changed')\n")
    with pytest.raises(UserError, match="does not match its checksum"):
        read_spec(paths)


def test_another_python_is_refused(tmp_path: Path) -> None:
    script = store(lambda_of_two(), tmp_path)
    here = f"!= {sys.version_info[:2]}"
    text = script.read_text()
    assert here in text
    script.write_text(text.replace(here, "!= (3, 9)"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "ImportError: two is stored by value, by Python" in done.stderr


KINDS = """
from ray import tune
from ray.train import report

def reports_to_tune(config):
    tune.report({"loss": config["x"]})

def reports_to_train(config):
    report({"loss": config["x"]})

def asks(trial):
    return trial.suggest_float("x", 0, 1)

class Steps(tune.Trainable):
    def step(self):
        return {"loss": 1.0, "done": True}
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("reports_to_tune", "Ray Tune function"),
        ("reports_to_train", "Ray Train loop"),
        ("asks", "Optuna objective"),
        ("Steps", "Ray Tune class"),
    ],
)
def test_kind_is_that_of_the_same_code_in_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    module = ModuleType("cells")
    (tmp_path / "cells.py").write_text(KINDS)
    module.__file__ = str(tmp_path / "cells.py")
    monkeypatch.setitem(sys.modules, "cells", module)
    exec(compile(KINDS, tmp_path / "cells.py", "exec"), vars(module))
    script = store(vars(module)[name], tmp_path)
    assert resolve(f"{tmp_path}/cells.py:{name}").kind == kind
    stored = resolve(f"{script}:{name}")
    assert stored.kind == kind
    assert code_problems(stored) == []


def test_code_that_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "open.txt", "w") as file:

        def writes() -> None:
            file.write("x")

        with pytest.raises(UserError, match=r"writes cannot be stored by value: .*let it open"):
            store(writes, tmp_path)


def test_code_whose_lines_cannot_be_dedented_is_stored(tmp_path: Path) -> None:
    def counts(config: object) -> str:
        text = """
at the left margin
"""
        return text.strip()

    (tmp_path / "s").mkdir()
    script = store(counts, tmp_path / "s")
    code = f"import runpy; print(runpy.run_path({str(script)!r})['counts'](0))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "at the left margin\n"


def test_lambda_is_refused() -> None:
    with pytest.raises(UserError, match="a lambda has no name; write a function with def"):
        name_of(lambda config: None)


def test_names_of_modules_are_used_where_there_are_any() -> None:
    assert name_of(Digits) == "trainables.digits.config:Digits"

    assert name_of(lambda_of_two()) is None


def lambda_of_two():
    def two(config):
        return 2

    return two
