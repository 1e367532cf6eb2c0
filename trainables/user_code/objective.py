"""An Optuna objective, `objective(trial)`, as a trainable; nothing is imported from Optuna.

The sweep chooses the values: `suggest_float` and its like return those of the configuration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError, suggest
from search_spaces.nested import flattened, show
from trainables.config import Problem
from trainables.job import Answer
from trainables.user_code import loader
from trainables.user_code.private_folders import private_folders
from trainables.user_code.user_loop import UncheckedConfig, UserFunction

if TYPE_CHECKING:
    from trainables.worker import Worker

_PRUNED = "TrialPruned"
"""Name of the exception by which an objective ends early."""


def is_objective(name: str) -> bool:
    """Whether a function asks its first argument for suggestions; it is not imported."""
    found = _function(name)
    return found is not None and any(_suggestions(found))


def _function(name: str) -> ast.FunctionDef | None:
    found = loader.function_in(loader.parse(name)[1], name.rpartition(":")[2])
    return found if found and found.args.args else None


def _suggestions(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """The calls of `suggest_…` on the first argument."""
    begin = f"{function.args.args[0].arg}.suggest_"
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(begin):
            yield node


def _always_asked(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """Names that every call of the function asks for, as far as its text shows, and their lines."""
    asked = set(map(id, _suggestions(function)))
    for statement in function.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
            for node in ast.walk(statement):
                if id(node) in asked and isinstance(node, ast.Call) and node.args:
                    first = node.args[0]
                    if isinstance(first, ast.Constant) and isinstance(first.value, str):
                        yield first.value, node.lineno


class Objective(UserFunction):
    """Calls the objective, which reports intermediate values and returns the last one.

    It saves no checkpoints, so a new attempt begins again.
    """

    kind = "Optuna objective"
    to_pause = "a kind of code that saves checkpoints"

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """Call the objective with a `SweepTrial`; see the base class.

        Raises:
            UserError: the objective and the space do not fit together.
        """
        trial = SweepTrial(worker, flattened(worker.job.config))
        objective = loader.load(self.name)  # its path may be relative
        try:
            with private_folders(worker.job.paths):
                value = objective(trial)
        except Exception as e:
            if trial.should_prune() and any(c.__name__ == _PRUNED for c in type(e).__mro__):
                return
            raise
        if not trial.should_prune():
            trial.finish(value)

    def config_problems(self, config: Mapping[str, Any], *, files: bool) -> list[Problem]:
        """Names that the objective asks for and that the configuration lacks."""
        function, names = _function(self.name), flattened(config)
        if function is None:
            return []
        file = loader.find(self.name).name
        return [
            ((), f"{file}:{line}: asks for '{name}', which neither space nor fixed has")
            for name, line in _always_asked(function)
            if name not in names
        ]

    def worker_problems(self, config: Mapping[str, Any], workers: Sequence[int]) -> list[Problem]:
        """An objective runs on one worker; see the base class."""
        return [((), "an Optuna objective takes one worker")] if list(workers) != [1] else []

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """Generators are seeded before each trial; see the base class."""
        return {**config, "seed": seed} if "seed" in config else config


class TrialPruned(Exception):
    """Ends an objective that goes on after it was told to stop."""


class SweepTrial:
    """What an objective gets in place of `optuna.Trial`.

    Attributes:
        params: values that were asked for, by name.
        user_attrs: what the objective noted; it is not recorded.
        number: of the trial.
    """

    def __init__(self, worker: Worker, values: Mapping[str, Any]) -> None:
        self._worker, self._values = worker, values
        self._answer, self._last = Answer.CONTINUE, -1
        self._newest: float | None = None
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        digits = "".join(filter(str.isdigit, worker.job.trial_id))
        self.number = int(digits or 0)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """The number of this name, which must lie in the range."""
        return float(self._in_range(name, low, high))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """The whole number of this name, which must lie in the range."""
        value = self._in_range(name, low, high)
        if value != int(value):
            raise UserError(f"{name}: the objective asks for a whole number, got {show(value)}")
        return int(value)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """The value of this name, which must be one of the choices."""
        value = self._value(name)
        if value not in choices:
            listed = ", ".join(map(show, choices))
            raise UserError(f"{name}: the objective takes {listed}, got {show(value)}")
        return value

    def report(self, value: float, step: int) -> None:
        """Report an intermediate value of the sweep's metric."""
        if self.should_prune():
            raise TrialPruned("the trial was stopped at an earlier report")
        self._last, self._newest = step, float(value)
        metrics = {self._worker.job.retention.metric: self._newest}
        self._answer = self._worker.report(step=step, metrics=metrics)

    def should_prune(self) -> bool:
        """Whether the scheduler has stopped the trial."""
        return self._answer is not Answer.CONTINUE

    def set_user_attr(self, key: str, value: Any) -> None:
        """Note something about the trial; see `user_attrs`."""
        self.user_attrs[key] = value

    def finish(self, value: object) -> None:
        """Report what the objective returned, unless it is what it reported last."""
        if not isinstance(value, int | float) and not hasattr(value, "__float__"):
            raise UserError(f"the objective returned {show(value)}, which is not a number")
        if float(value) != self._newest:
            self.report(float(value), self._last + 1 if self._last >= 0 else 1)

    def _in_range(self, name: str, low: float, high: float) -> float:
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{name}: the objective asks for a number, got {show(value)}")
        if not low <= value <= high:
            raise UserError(
                f"{name}: the objective asks for a value from {low} to {high}, got {value}"
            )
        return value

    def _value(self, name: str) -> Any:
        if name not in self._values:
            hint = suggest(name, list(self._values))
            raise UserError(
                f"the objective asks for '{name}', which neither space nor fixed has{hint}"
            )
        self.params[name] = self._values[name]
        return self._values[name]
