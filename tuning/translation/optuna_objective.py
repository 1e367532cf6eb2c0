"""Reads the space of an Optuna objective by calling it a few times with a recording trial."""

from __future__ import annotations

import ast
import contextlib
import io
from collections.abc import Sequence
from typing import Any

from search_spaces.errors import UserError
from trainables.user_code import loader
from tuning.translation.draft import Draft

_MOST = 8
"""Calls of the objective, each of which ends at its first report."""


class _Reported(BaseException):
    """Ends a call; not an `Exception`, which an objective may catch."""


class _RecordingTrial:
    """Answers suggestions with the values of one call, and keeps their domains."""

    number = 0

    def __init__(self, call: int, found: dict[str, dict[str, Any]], sizes: list[int]) -> None:
        self._call, self._found, self._sizes = call, found, sizes
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> Any:
        if step is not None:
            return self._add(name, {"quniform": [low, high, step]}, [low, high])
        return self._add(name, {"loguniform" if log else "uniform": [low, high]}, [low, high])

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> Any:
        if step != 1:
            return self._add(name, {"qrandint": [low, high, step]}, [low, high])
        kind = "lograndint" if log else "randint"
        return self._add(name, {kind: [low, high + 1]}, [low, high])

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self._sizes.append(len(choices))
        return self._add(name, {"choice": list(choices)}, choices)

    def report(self, value: float, step: int) -> None:
        raise _Reported

    def should_prune(self) -> bool:
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def _add(self, name: str, domain: dict[str, Any], values: Sequence[Any]) -> Any:
        self._found[name] = domain
        self.params[name] = values[self._call % len(values)]
        return self.params[name]


def translate(draft: Draft, name: str) -> None:
    """Fill a draft from an objective.

    Raises:
        UserError: it cannot be imported, or fails before it has asked for a value.
    """
    draft.code = {"trainable": name}
    objective = loader.load(name)
    sizes: list[int] = [1]
    asked: list[set[str]] = []
    while len(asked) < min(max(sizes), _MOST):
        asked.append(_call(draft, objective, len(asked), sizes))
    for parameter in sorted(set(draft.space) - asked[0].intersection(*asked)):
        draft.note(None, f"{parameter} is asked for in some branches only")
    more = f" {max(sizes)} would be needed" if max(sizes) > _MOST else ""
    draft.note(None, f"{len(asked)} calls of the objective; other branches are not known.{more}")
    _study(draft, loader.parse(name)[1])


def _call(draft: Draft, objective: Any, number: int, sizes: list[int]) -> set[str]:
    trial = _RecordingTrial(number, draft.space, sizes)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            objective(trial)
    except _Reported:
        pass
    except Exception as e:
        draft.note(None, f"call {number + 1} of the objective failed: {type(e).__name__}: {e}")
        if not trial.params:
            raise UserError(f"{draft.source}: {type(e).__name__}: {e}") from e
    return set(trial.params)


def _study(draft: Draft, tree: ast.Module) -> None:
    """The direction and the number of trials that the script gives to its study."""
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        given = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
        if given.get("direction") == "maximize":
            draft.mode = "max"
        if isinstance(given.get("n_trials"), int):
            draft.set("budget", trials=given["n_trials"])
        called = ast.unparse(call.func).rpartition(".")[2]
        if called.endswith("Pruner"):
            draft.note(call.lineno, f"{called} is not translated; see scheduler")
