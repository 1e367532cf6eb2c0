"""Drives a sweep: the CLI, the Python API, and the only code that talks to Ray Tune and Optuna.

The public names are imported on first use, so that `import tuning` loads nothing else.
A package of tune-platform.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from search_spaces.errors import UserError
    from tuning.api import resume, run
    from tuning.controller.events import SweepEvents
    from tuning.python.arguments import (
        Budget,
        Checkpoint,
        Failure,
        Resources,
        Scheduler,
        Search,
        Select,
        Tracking,
    )
    from tuning.python.ask_tell import Trial
    from tuning.python.load import load, load_yaml
    from tuning.python.run import Run
    from tuning.python.space import (
        choice,
        grid_search,
        lograndint,
        loguniform,
        ordinal,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        uniform,
    )
    from tuning.python.sweep import Sweep

__all__ = [
    "Budget",
    "Checkpoint",
    "Failure",
    "Resources",
    "Run",
    "Scheduler",
    "Search",
    "Select",
    "Sweep",
    "SweepEvents",
    "Tracking",
    "Trial",
    "UserError",
    "choice",
    "grid_search",
    "load",
    "load_yaml",
    "lograndint",
    "loguniform",
    "ordinal",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "resume",
    "run",
    "uniform",
]

_SECTIONS = (
    *("Budget", "Checkpoint", "Failure", "Resources"),
    *("Scheduler", "Search", "Select", "Tracking"),
)
_MODULES = dict.fromkeys(__all__, "tuning.python.space") | {
    **dict.fromkeys(_SECTIONS, "tuning.python.arguments"),
    **dict.fromkeys(("resume", "run"), "tuning.api"),
    **dict.fromkeys(("load", "load_yaml"), "tuning.python.load"),
    "Sweep": "tuning.python.sweep",
    "Trial": "tuning.python.ask_tell",
    "Run": "tuning.python.run",
    "SweepEvents": "tuning.controller.events",
    "UserError": "search_spaces.errors",
}

if not TYPE_CHECKING:  # else a type checker would accept any name

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
