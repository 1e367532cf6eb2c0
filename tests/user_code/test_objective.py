"""An Optuna objective runs as a trial; the sweep answers its suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from search_spaces.errors import UserError
from search_spaces.spec.objectives import Objective as Goal
from tests.trainables.local import RecordingChannel, run_trial
from tests.user_code.conftest import PROGRAMS
from tests.user_code.programs.optuna_objective import objective
from trainables.job import Answer
from trainables.registry import resolve
from trainables.user_code.optuna.objective import OptunaObjective
from trainables.user_code.user_loop import UserLoop

SCRIPT = PROGRAMS / "optuna_objective.py"
LOSS = (Goal("loss", "min"),)
CONFIG: dict[str, Any] = {"rate": 0.1, "kind": "momentum", "steps": 4}


def run(folder: Path, function: str = "objective", **options: Any) -> RecordingChannel:
    config = {**CONFIG, **options.pop("config", {})}
    options = {"objectives": LOSS, **options}
    return run_trial(folder, f"{SCRIPT}:{function}", config, **options)


def test_objective_is_known_by_its_suggestions(tmp_path: Path) -> None:
    assert isinstance(resolve(f"{SCRIPT}:objective"), OptunaObjective)
    (tmp_path / "loop.py").write_text("def loop(config):\n    other.suggest_float('x', 0, 1)\n")
    assert isinstance(resolve(f"{tmp_path / 'loop.py'}:loop"), UserLoop)


def test_values_are_those_that_optuna_gets(tmp_path: Path) -> None:
    curve = run(tmp_path / "t").curve
    fixed = optuna.trial.FixedTrial(CONFIG)
    assert curve[3]["loss"] == objective(fixed)
    assert list(curve) == [0, 1, 2, 3]


@pytest.mark.parametrize("function", ["objective", "unprunable"])
def test_stopped_objective_ends_whether_it_asks_or_not(function: str, tmp_path: Path) -> None:
    stop = RecordingChannel({1: Answer.STOP})
    assert list(run(tmp_path / "t", function, channel=stop).curve) == [0, 1]


WRONG = {
    "range": ("objective", {"rate": 2.0}, "rate: the objective asks for a value from 0.001 to 1.0"),
    "text": ("objective", {"rate": "x"}, "rate: the objective asks for a number, got 'x'"),
    "whole": ("objective", {"steps": 1.5}, "steps: the objective asks for a whole number, got 1.5"),
    "choice": ("objective", {"kind": "none"}, "kind: the objective takes 'plain', 'momentum', got"),
    "two": ("pair", {}, "the objective returned 2 values, and the sweep has 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_space_that_does_not_fit_is_one_line(name: str, tmp_path: Path) -> None:
    function, config, message = WRONG[name]
    with pytest.raises(UserError, match=message):
        run(tmp_path / "t", function, config=config)


def test_plan_names_what_the_space_lacks() -> None:
    trainable = resolve(f"{SCRIPT}:objective")
    assert trainable.config_problems(CONFIG, files=True) == []
    problems = trainable.config_problems({"rate": 1}, files=True)
    where = [text.partition(",")[0] for _, text in problems]
    assert where == [
        f"optuna_objective.py:{n}: asks for '{w}'" for n, w in ((8, "kind"), (9, "steps"))
    ]
    assert trainable.worker_problems(CONFIG, [1]) == []
    assert [path for path, _ in trainable.worker_problems(CONFIG, [2])] == [()]


def test_missing_parameter_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"asks for 'rate', which neither .* \(did you mean 'rat'"):
        run_trial(tmp_path / "t", f"{SCRIPT}:objective", {"rat": 1.0})
