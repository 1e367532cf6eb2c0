"""Names of version 0.1.0 that have moved: until version 0.3 they work, with a DeprecationWarning.

Internal modules that no page documented are not among them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T", bound=type)

MODULES = {
    "trainables.sampling": "trainables.common.data_sampler",
    "trainables.saving": "trainables.checkpointing.saver",
    "trainables.seeding": "trainables.runtime.seeding",
    "trainables.state": "trainables.checkpointing.training_state",
    "trainables.tensor_file": "trainables.checkpointing.tensor_file",
    "trainables.training": "trainables.common.training",
}
FUNCTIONS = {
    "trainables.saving.together": "in_parallel",
    "trainables.seeding.own_world": "isolated_rng",
    "trainables.training.parallel": "data_parallel",
}
WORKER = {"beat": "heartbeat", "trained_on": "log_dataset"}
CONFIG = {
    "anchored": "resolve_paths",
    "initialised": "with_init_seed",
    "misfit": "validate_workers",
    "shrunk": "halve_micro_batch",
}


class OldModules(Loader, MetaPathFinder):
    """Finds the modules of `MODULES`, whose names lead to the modules that replace them."""

    @classmethod
    def install(cls) -> None:
        """Let `import` find the old modules in this process."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.append(cls())

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        return ModuleSpec(name, self) if name in MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        """See the base class."""

    def exec_module(self, module: ModuleType) -> None:
        """See the base class."""
        vars(module)["__getattr__"] = partial(_moved, module.__name__)


def _moved(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    new = FUNCTIONS.get(f"{module}.{name}", name)
    found = getattr(import_module(MODULES[module]), new)
    _warn(f"{module}.{name}", f"trainables.{new}")
    return found


def with_old_names(names: dict[str, str]) -> Callable[[T], T]:
    """Class decorator: methods can be called by their old names (old name → new name) too."""

    def decorate(cls: T) -> T:
        for old, new in names.items():
            method = vars(cls)[new]
            if isinstance(method, classmethod):
                setattr(cls, old, classmethod(_forward(old, new, method.__func__)))
            else:
                setattr(cls, old, _forward(old, new, method))
        return cls

    return decorate


def adopt_overrides(cls: type, names: dict[str, str]) -> None:
    """Let methods that a class overrides by their old names take the place of the new ones."""
    for old, new in names.items():
        if old in vars(cls) and new not in vars(cls):
            _warn(f"{cls.__name__}.{old}", f"{cls.__name__}.{new}")
            setattr(cls, new, vars(cls)[old])


def _forward(old: str, new: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def forward(*args: Any, **kwargs: Any) -> Any:
        _warn(old, new)
        return method(*args, **kwargs)

    return forward


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
