"""Reads the space of an Optuna objective by calling it a few times with trials of Optuna."""

from __future__ import annotations

import ast
import contextlib
import io
import warnings
from typing import TYPE_CHECKING, Any

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import OPEN
from search_spaces.nested import walk
from trainables.user_code import loader
from trainables.user_code.python_source.python_file import UNREAD
from tuning.translation.domains import between
from tuning.translation.draft import Draft
from tuning.translation.optuna_study import read_study
from tuning.translation.script import Script

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MOST = 8
"""Calls of the objective, each of which ends at its first report."""


class _Reported(BaseException):
    """Ends a call; not an `Exception`, which an objective may catch."""


def translate(script: Script, name: str) -> None:
    """Fill a draft from an objective, and from the study of its file.

    Raises:
        UserError: it cannot be imported, or fails before it has asked for a value.
    """
    draft = script.draft
    draft.set("trainable", name)
    read_study(script, name.rpartition(":")[2])
    space = _Space(draft)
    try:
        objective = loader.load(name)
    except (Exception, SystemExit) as e:
        if isinstance(e, UserError):
            raise
        raise UserError(f"{draft.source}: cannot be imported: {_shown(e)}") from e
    while space.calls < min(space.needed, _MOST):
        space.call(objective)
    space.write()
    _note_unasked(script, space, name.rpartition(":")[2])


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


class _Space:
    """What the calls of an objective have asked for.

    Attributes:
        calls: number of calls so far.
        needed: that number which shows each option once.
        found: the distributions of each name, that differ.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft, self._asked = draft, list[set[str]]()
        self.calls, self.needed = 0, 1
        self.found: dict[str, list[BaseDistribution]] = {}

    def call(self, objective: Any) -> None:
        """Call the objective once more."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        directions = optuna.study.StudyDirection
        is_max = self._draft.keys.get("mode") == "max"
        direction = directions.MAXIMIZE if is_max else directions.MINIMIZE
        study = optuna.create_study(direction=direction, sampler=_sampler(self.calls))
        self.calls += 1
        trial = study.ask()
        setattr(trial, "report", _end)  # noqa: B010  # a method of this one trial
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                warnings.catch_warnings(action="ignore"),
            ):
                objective(trial)
        except _Reported:
            pass
        except Exception as e:
            self._draft.note(None, f"call {self.calls} of the objective failed: {_shown(e)}")
            if not trial.distributions:
                raise UserError(f"{self._draft.source}: {_shown(e)}") from e
        self._asked.append(set(trial.distributions))
        for name, distribution in trial.distributions.items():
            known = self.found.setdefault(name, [])
            known += [] if distribution in known else [distribution]
            options = getattr(distribution, "choices", "ab")
            self.needed = max(self.needed, 1 if distribution.single() else len(options))

    def write(self) -> None:
        """Add the parameters to the draft."""
        always = self._asked[0].intersection(*self._asked)
        for name, distributions in self.found.items():
            if name not in always:
                self._draft.note(None, f"{name} is asked for in some branches only")
            if len(distributions) > 1:
                shown = " or ".join(map(str, distributions))
                self._draft.note(None, f"{name}: its range depends on other values: {shown}")
                self._draft.add(None, name, OPEN)
            else:
                self._draft.add(None, name, _domain(self._draft, name, distributions[0]) or OPEN)
        more = f" {self.needed} would be needed" if self.needed > _MOST else ""
        text = f"{self.calls} calls of the objective; other branches are not known.{more}"
        self._draft.note(None, text)


def _end(*_: Any, **__: Any) -> None:
    raise _Reported


def _sampler(call: int) -> Any:
    """A sampler that takes the options in turn, and the bounds of ranges."""
    from optuna.samplers import BaseSampler

    class Turns(BaseSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(
            self, study: Any, trial: Any, param_name: str, param_distribution: Any
        ) -> Any:
            options = getattr(param_distribution, "choices", None)
            options = options or (param_distribution.low, param_distribution.high)
            return options[call % len(options)]

    return Turns()


def _domain(draft: Draft, name: str, found: Any) -> Any:
    choices = getattr(found, "choices", None)
    if choices is None:
        domain = between(found.low, found.high, found.step, log=found.log)
        if domain is None:
            draft.note(None, f"{name}: {found} is not translated")
        return domain
    if any(isinstance(part, tuple) for choice in choices for _, part in walk(choice)):
        draft.note(None, f"{name}: its tuples are written as lists")
    plain = [_plain(choice) for choice in choices]
    if any(value is UNREAD for value in plain):
        draft.note(None, f"{name}: {found} is not translated: no plain data")
        return None
    return {"choice": plain}


def _plain(value: Any) -> Any:
    """A choice as plain data; `UNREAD` if it is none."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()  # of numpy
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return UNREAD if any(part is UNREAD for part in parts) else parts
    return value if value is None or isinstance(value, bool | int | float | str) else UNREAD


def _note_unasked(script: Script, space: _Space, function: str) -> None:
    """Note the suggestions of the file that no call has reached."""
    objective = script.function(function)
    for call in script.calls():
        if not isinstance(call.func, ast.Attribute) or not call.func.attr.startswith("suggest_"):
            continue
        name = script.literal(call.args[0] if call.args else None)
        if isinstance(name, str) and name not in space.found:
            script.note(call, f"{ast.unparse(call)}, which no call has reached,")
            if objective is not None and call in ast.walk(objective):
                script.draft.add(call.lineno, name, OPEN)
        elif not isinstance(name, str):
            script.draft.note(call.lineno, f"{ast.unparse(call)}: more names may be asked for")
