"""What an Optuna objective gets in place of `optuna.Trial`; nothing is imported from Optuna."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError, quantity, suggest
from search_spaces.nested import show
from trainables.job import Answer, as_number

if TYPE_CHECKING:
    from trainables.worker import Worker

MEMBERS: dict[str, str] = {
    "suggest_float": "the sweep's value of this name",
    "suggest_int": "the sweep's value of this name",
    "suggest_categorical": "the choice that is the sweep's value: a list stands for a tuple",
    "suggest_uniform": "as suggest_float",
    "suggest_loguniform": "as suggest_float",
    "suggest_discrete_uniform": "as suggest_float",
    "report": "a report of the sweep's metric; a step that is not greater is ignored",
    "should_prune": "whether the sweep's scheduler stops the trial",
    "params": "the values that were asked for",
    "number": "the number of the configuration",
    "datetime_start": "when the attempt began",
    "user_attrs": "what set_user_attr has set",
    "set_user_attr": "kept for the objective itself; not recorded",
    "study": "the sweep, with the members below",
    "study.direction": "of the sweep's metric",
    "study.directions": "of the sweep's metrics",
    "study.study_name": "the name of the sweep's folder",
}
"""Member of `optuna.Trial` to what it does in a sweep. Other members are not offered."""


class TrialPruned(Exception):
    """Ends an objective that goes on after it was told to stop."""


class StudyView:
    """What `trial.study` is."""

    def __init__(self, worker: Worker) -> None:
        self._modes = [o.mode for o in worker.job.objectives]
        self.study_name = Path(worker.job.folder).parents[1].name

    @property
    def directions(self) -> list[Any]:
        """Whether less or more of each metric is better, as Optuna's own values."""
        values = import_module("optuna.study").StudyDirection  # only for objectives that have it
        return [values.MINIMIZE if mode == "min" else values.MAXIMIZE for mode in self._modes]

    @property
    def direction(self) -> Any:
        """That of the first metric."""
        return self.directions[0]

    def __getattr__(self, name: str) -> Any:
        raise _not_offered(f"study.{name}")


class SweepTrial:
    """What an objective gets in place of `optuna.Trial`; see `MEMBERS`.

    The first report at `max_t` or after it is held back: the trial ends with it, and its value is
    what the objective returns, if it returns before another report.
    """

    def __init__(self, worker: Worker, values: Mapping[str, Any]) -> None:
        self._worker, self._values = worker, values
        self._answer, self._last = Answer.CONTINUE, -1
        self._newest: float | None = None
        self._is_held = False
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}
        self.study = StudyView(worker)
        self.datetime_start = datetime.now()  # without a time zone, as Optuna has it
        digits = "".join(filter(str.isdigit, worker.job.trial_id.partition("-")[0]))
        self.number = int(digits or 0)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """The number of this name, which must lie in the range."""
        return float(self._in_range(name, low, high))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """As `suggest_float`."""
        return self.suggest_float(name, low, high)

    suggest_loguniform = suggest_uniform

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """As `suggest_float`."""
        return self.suggest_float(name, low, high, step=q)

    def suggest_int(self, name: str, low: int, high: int, step: int = 1, log: bool = False) -> int:
        """The whole number of this name, which must lie in the range."""
        value = self._in_range(name, low, high)
        if value != int(value):
            raise UserError(f"{name}: the objective asks for a whole number, got {show(value)}")
        return int(value)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """The choice that is the value of this name, as the objective has it."""
        value = self._value(name)
        for choice in choices:
            if _plain(choice) == _plain(value):
                self.params[name] = choice
                return choice
        listed = ", ".join(map(show, choices))
        raise UserError(f"{name}: the objective takes {listed}, got {show(value)}")

    def report(self, value: float, step: int) -> None:
        """Report an intermediate value of the sweep's metric.

        Raises:
            TrialPruned: the trial was stopped before.
            UserError: the sweep has several metrics.
        """
        if len(self._worker.job.objectives) > 1:
            raise UserError("trial.report: an objective of several metrics returns them only")
        if self._is_held and self._newest is not None:  # it ends with that report
            self._is_held = False
            self._send(self._last, [self._newest])
        if self.should_prune():
            raise TrialPruned("the trial was stopped at an earlier report")
        if (step := _step(step)) <= self._last:
            problem = f"step {step} is reported after step {self._last}; it is ignored"
            warnings.warn(problem, stacklevel=2)
            return
        self._last, self._newest = step, as_number(self._metrics[0], value)
        max_t = self._worker.job.max_t
        self._is_held = max_t is not None and step >= max_t
        if not self._is_held:
            self._send(step, [self._newest])

    def should_prune(self) -> bool:
        """Whether the scheduler has stopped the trial."""
        return self._answer is not Answer.CONTINUE

    def set_user_attr(self, key: str, value: Any) -> None:
        """Note something about the trial; see `user_attrs`."""
        self.user_attrs[key] = value

    def finish(self, returned: object) -> None:
        """Report what the objective returned, unless it is what it reported last.

        Raises:
            UserError: it is not a number for each metric.
        """
        values = [*returned] if isinstance(returned, tuple | list) else [returned]
        if len(values) != len(self._metrics):
            names = ", ".join(self._metrics)
            counts = [quantity(len(values), "value"), quantity(len(self._metrics), "metric")]
            raise UserError(
                f"the objective returned {counts[0]}, and the sweep has {counts[1]} ({names})"
            )
        if any(not hasattr(value, "__float__") for value in values):
            raise UserError(f"the objective returned {show(returned)}, which is not a number")
        numbers = [as_number(n, v) for n, v in zip(self._metrics, values, strict=True)]
        if self._is_held or numbers != [self._newest]:
            self._send(self._last if self._is_held else max(1, self._last + 1), numbers)

    def __getattr__(self, name: str) -> Any:
        raise _not_offered(name)

    @property
    def _metrics(self) -> list[str]:
        return [o.metric for o in self._worker.job.objectives]

    def _send(self, step: int, values: Sequence[float]) -> None:
        metrics = dict(zip(self._metrics, values, strict=True))
        self._answer = self._worker.report(step=step, metrics=metrics)

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


def _plain(value: Any) -> Any:
    """A choice as a sweep file has it, in a form in which equal values are equal: a NaN, too.

    The types of numbers count: `True` is not 1.
    """
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()  # a number of numpy
    is_nan = isinstance(value, float) and math.isnan(value)
    return isinstance(value, bool), is_nan, None if is_nan else value


def _step(step: object) -> int:
    try:
        number = int(step)  # type: ignore[call-overload]  # the error is what is asked for
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number < 0:
        raise UserError(f"trial.report: step {show(step)} is not a whole number from 0")
    return int(number)


def _not_offered(name: str) -> AttributeError:
    return AttributeError(f"a trial of a sweep does not offer {name} of Optuna's trial")
