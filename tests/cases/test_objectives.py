"""Optuna objectives: what a trial is worth, how it ends, and which code is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from search_spaces.errors import UserError
from search_spaces.spec.select import Objective as Goal
from tests.trainables.local import RecordingChannel, make_worker, run_trial
from tests.tuning.simulate import make_spec
from tests.user_code.conftest import PROGRAMS
from tests.user_code.programs.optuna_objective import objective
from trainables.job import Answer, Pruned
from trainables.launch.broker.events import Ended, RankOutcome, merge_outcomes
from trainables.registry import resolve
from trainables.user_code.optuna.objective import OptunaObjective
from trainables.user_code.optuna.sweep_trial import MEMBERS, SweepTrial
from trainables.user_code.user_loop import UserLoop
from tuning.controller.preflight.trainables import (
    code_problems,
    config_problems,
    setting_problems,
    worker_problems,
)

LOSS, TWO = (Goal("loss", "min"),), (Goal("loss", "min"), Goal("size", "max"))


def run(
    folder: Path, body: str, config: dict[str, Any] | None = None, **options: Any
) -> RecordingChannel:
    """Run `objective`, of which `body` is the source after the definition of `x`."""
    script = folder / "script.py"
    script.write_text(
        "import numpy as np\nclass TrialPruned(Exception): ...\n"
        "def objective(trial):\n    x = trial.suggest_float('x', 0, 1)\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
    )
    options = {"objectives": LOSS, **options}
    return run_trial(
        folder / "t0000", f"{script}:objective", {"x": 0.5, **(config or {})}, **options
    )


REPORTS = "for step in {steps}:\n    trial.report(x + step, step)\n"


@pytest.mark.parametrize(
    ("steps", "max_t", "curve"),
    [
        ("(1, 2)", None, {1: 1.5, 2: 2.5, 3: 9.0}),
        ("(1, 2, 3)", 3, {1: 1.5, 2: 2.5, 3: 9.0}),  # at max_t, the returned value in its place
        ("(1, 2)", 5, {1: 1.5, 2: 2.5, 3: 9.0}),
        ("()", 3, {1: 9.0}),
        ("np.arange(2)", None, {0: 0.5, 1: 1.5, 2: 9.0}),
    ],
)
def test_returned_value_is_the_last_one(
    steps: str, max_t: int | None, curve: dict[int, float], tmp_path: Path
) -> None:
    found = run(tmp_path, REPORTS.format(steps=steps) + "return 9.0", max_t=max_t).curve
    assert found == {step: {"loss": value} for step, value in curve.items()}


def test_objective_that_goes_on_after_max_t_ends_with_its_report_there(tmp_path: Path) -> None:
    channel = RecordingChannel({2: Answer.STOP})
    found = run(tmp_path, REPORTS.format(steps="range(9)") + "return 9.0", max_t=2, channel=channel)
    assert found.curve == {0: {"loss": 0.5}, 1: {"loss": 1.5}, 2: {"loss": 2.5}}


def test_step_that_is_not_greater_is_ignored_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="step 1 is reported after step 2"):
        found = run(tmp_path, REPORTS.format(steps="(1, 2, 1, 3)") + "return x + 3")
    assert found.curve == {step: {"loss": 0.5 + step} for step in (1, 2, 3)}


def test_own_pruning_ends_the_trial_as_pruned(tmp_path: Path) -> None:
    with pytest.raises(Pruned, match="no such size"):
        run(tmp_path, "raise TrialPruned('no such size')")
    outcomes = {0: RankOutcome(pruned="no such size")}
    assert merge_outcomes(outcomes, {}) == Ended("no such size")


def test_several_values_are_several_metrics(tmp_path: Path) -> None:
    assert run(tmp_path, "return x, np.float32(2)", objectives=TWO).curve == {
        1: {"loss": 0.5, "size": 2.0}
    }


@pytest.mark.parametrize(
    ("choices", "value", "chosen"),
    [
        ([(64,), (64, 32)], [64, 32], (64, 32)),
        ([np.int64(4), np.int64(8)], 8, np.int64(8)),
        ([None, True, 1], 1, 1),
        ([1, True], True, True),
    ],
)
def test_choice_is_that_of_the_objective(
    choices: list[Any], value: Any, chosen: Any, tmp_path: Path
) -> None:
    trial = SweepTrial(make_worker(tmp_path / "t0003-2", objectives=LOSS), {"c": value})
    found = trial.suggest_categorical("c", choices)
    assert (found, type(found)) == (chosen, type(chosen))
    assert trial.params == {"c": chosen}
    assert trial.number == 3


def test_nan_is_a_choice(tmp_path: Path) -> None:
    trial = SweepTrial(make_worker(tmp_path / "t0000", objectives=LOSS), {"c": float("nan")})
    assert trial.suggest_categorical("c", [0.5, np.nan]) is np.nan


def test_members_are_those_of_the_table(tmp_path: Path) -> None:
    trial = SweepTrial(make_worker(tmp_path / "s/trials/t0000", objectives=TWO), {})
    for name in MEMBERS:
        of, _, member = name.rpartition(".")
        assert hasattr(trial.study if of else trial, member), name
    assert trial.study.direction is optuna.study.StudyDirection.MINIMIZE
    assert trial.study.directions[1] is optuna.study.StudyDirection.MAXIMIZE
    assert trial.study.study_name == "s"
    with pytest.raises(AttributeError, match="does not offer storage"):
        _ = trial.storage
    with pytest.raises(AttributeError, match=r"does not offer study\.trials"):
        _ = trial.study.trials


OBJECTIVES = {
    "helper": "def values(t):\n    return t.suggest_float('x', 0, 1)\n"
    "def objective(trial):\n    return values(trial)\n",
    "imported": "from beside import values\ndef objective(trial):\n    return values(t=trial)\n",
    "module": "import beside as b\ndef objective(trial):\n    return b.values(trial)\n",
    "instance": "class Own:\n    def __call__(self, t):\n        return self.value(t)\n"
    "    def value(self, t):\n        return t.suggest_float('x', 0, 1)\nobjective = Own()\n",
    "partial": "import functools\ndef base(scale, t):\n    return t.suggest_float('x', 0, 1)\n"
    "objective = functools.partial(base, 2)\n",
    "maker": "def make():\n    def inner(t):\n        return t.suggest_float('x', 0, 1)\n"
    "    return inner\nobjective = make()\n",
    "lambda": "objective = lambda t: t.suggest_float('x', 0, 1)\n",
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_whatever_asks_for_suggestions_is_an_objective(kind: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def values(t):\n    return t.suggest_float('x', 0, 1)\n")
    script = tmp_path / f"{kind}.py"
    script.write_text(OBJECTIVES[kind])
    found = resolve(f"{script}:objective")
    assert isinstance(found, OptunaObjective)
    (problem,) = config_problems(found, {"y": 1}, files=True)
    assert "asks for 'x'" in problem[1]


def problems(tmp_path: Path, source: str, **changes: Any) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(f"def objective(trial):\n    {source}\n")
    found = resolve(f"{script}:objective")
    spec = make_spec(space={"x": {"uniform": [0, 1]}}, scheduler={"name": "none"}, **changes)
    settings = [text for _, text in setting_problems(found, spec, [{"x": 0.5}])]
    return [*code_problems(found), *settings]


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("return trial.suggest_float('x', 0, trial.study.best_value)", "study.best_value"),
        ("trial.set_system_attr('a', 1); return trial.suggest_float('x', 0, 1)", "set_system_attr"),
        ("return trial.suggest_float('y', 0, 1)", "never asks for 'x'"),
        ("return trial.suggest_float('x', 0, 1), 2.0", "returns 2 values"),
    ],
)
def test_plan_names_what_a_sweep_does_not_answer(source: str, named: str, tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, source)
    assert named in problem


@pytest.mark.parametrize(
    "source",
    [
        "return trial.suggest_float('x', 0, 1)",
        "return other(trial)",  # may ask for anything
        "return trial.suggest_float(name, 0, 1)",
        "f = lambda: trial.suggest_float('x', 0, 1); return f()",
    ],
)
def test_plan_takes_what_it_cannot_know(source: str, tmp_path: Path) -> None:
    assert problems(tmp_path, source) == []


def test_names_of_branches_are_not_required(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "def objective(trial):\n"
        "    kind = trial.suggest_categorical('kind', ['a', 'b'])\n"
        "    c = trial.suggest_int('c', 0, 1) if kind == 'a' else 0\n"
        "    if kind == 'a':\n"
        "        return c\n"
        "    return trial.suggest_float('b', 0, 1)\n"
    )
    trainable = resolve(f"{script}:objective")
    found = config_problems(trainable, {}, files=True)
    assert [worker_problems(trainable, {}, [n])[:1] == [] for n in (1, 2)] == [True, False]
    assert [text.partition(", which")[0] for _, text in found] == ["script.py:2: asks for 'kind'"]


SCRIPT = PROGRAMS / "optuna_objective.py"
CONFIG: dict[str, Any] = {"rate": 0.1, "kind": "momentum", "steps": 4}


def run_script(folder: Path, function: str = "objective", **options: Any) -> RecordingChannel:
    config = {**CONFIG, **options.pop("config", {})}
    return run_trial(folder, f"{SCRIPT}:{function}", config, objectives=LOSS, **options)


def test_use_of_something_else_makes_no_objective(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("def loop(config):\n    other.suggest_float('x', 0, 1)\n")
    assert isinstance(resolve(f"{tmp_path / 'loop.py'}:loop"), UserLoop)


def test_values_are_those_that_optuna_gets(tmp_path: Path) -> None:
    curve = run_script(tmp_path / "t").curve
    fixed = optuna.trial.FixedTrial(CONFIG)
    assert curve[3]["loss"] == objective(fixed)
    assert list(curve) == [0, 1, 2, 3]


@pytest.mark.parametrize("function", ["objective", "unprunable"])
def test_stopped_objective_ends_whether_it_asks_or_not(function: str, tmp_path: Path) -> None:
    stop = RecordingChannel({1: Answer.STOP})
    assert list(run_script(tmp_path / "t", function, channel=stop).curve) == [0, 1]


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
        run_script(tmp_path / "t", function, config=config)


def test_missing_parameter_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"asks for 'rate', which neither .* \(did you mean 'rat'"):
        run_trial(tmp_path / "t", f"{SCRIPT}:objective", {"rat": 1.0})
