"""Drives a sweep: the CLI, the Python API, and the only code that talks to Ray Tune and Optuna."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuning.api import load, resume, run

__all__ = ["load", "resume", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tuning import api

    return getattr(api, name)
