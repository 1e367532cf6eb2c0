"""The sections of a sweep as Python calls, and the sweep that they make up.

Nothing is checked here: `check_sweep` checks all arguments of a sweep together, as those of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from search_spaces.loading.sweep_file import LoadedSweep, check_sweep
from search_spaces.positions import Arguments
from search_spaces.spec.base import Section
from search_spaces.spec.budget import BudgetSpec
from search_spaces.spec.checkpoint import CheckpointSpec
from search_spaces.spec.command import EXTERNAL
from search_spaces.spec.failure import FailureSpec
from search_spaces.spec.resources import ResourcesSpec
from search_spaces.spec.scheduler import SchedulerSpec
from search_spaces.spec.search import SearchSpec
from search_spaces.spec.select import SelectSpec
from search_spaces.spec.tracking import TrackingSpec
from tuning.python.by_value import name_of, store

P = ParamSpec("P")


def _section(model: Callable[P, Section]) -> Callable[P, dict[str, Any]]:
    """A function with the signature of a section, which returns its keys as they are given."""

    @wraps(model)
    def section(*args: P.args, **keys: P.kwargs) -> dict[str, Any]:
        return dict(keys)

    return section


Budget = _section(BudgetSpec)
Checkpoint = _section(CheckpointSpec)
Failure = _section(FailureSpec)
Resources = _section(ResourcesSpec)
Scheduler = _section(SchedulerSpec)
Search = _section(SearchSpec)
Select = _section(SelectSpec)
Tracking = _section(TrackingSpec)


def check_arguments(trainable: Any, keys: Mapping[str, Any], folder: Path) -> LoadedSweep:
    """The sweep that the arguments of `Sweep` describe.

    Args:
        trainable: a name, a function or a class; None with a `command` among the keys.
        keys: the other keys of a sweep file; None stands for a key that is not given.
        folder: for a file of code that exists in no module.

    Raises:
        UserError: all mistakes at once, one line each, with the argument's name.
    """
    code: list[Path] = []

    def named(value: Any) -> Any:
        """The name of a function or class, which is stored if no module has it."""
        if value is None or isinstance(value, str):
            return value
        if (name := name_of(value)) is None:
            code.append(store(value, folder))
            name = f"{code[-1]}:{value.__name__}"
        return name

    target: str = getattr(trainable, "__name__", trainable or "sweep")
    given: dict[str, Any] = {"name": target.rpartition(":")[2]}
    given |= {key: _plain(value) for key, value in keys.items() if value is not None}
    given["trainable"] = named(trainable) or (None if "command" in given else EXTERNAL)
    if isinstance(functions := given.get("user_code"), dict):
        given["user_code"] = {key: named(value) for key, value in functions.items()}
    return check_sweep(given, Arguments("Sweep"), code)


def _plain(value: Any) -> Any:
    """A value as a file has it: lists for tuples, text for paths, numbers for NumPy's scalars."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else value
