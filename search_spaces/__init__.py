"""The search: the sweep file's schema, its loader, and the YAML files that ship.

The public names are imported on first use, so that `import search_spaces` loads nothing else.
A package of tune-platform.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from search_spaces.errors import UserError
    from search_spaces.loading.sweep_file import LoadedSweep, load_sweep
    from search_spaces.spec.sweep import SweepSpec

__all__ = ["LoadedSweep", "SweepSpec", "UserError", "load_sweep"]

_MODULES = {
    "LoadedSweep": "search_spaces.loading.sweep_file",
    "SweepSpec": "search_spaces.spec.sweep",
    "UserError": "search_spaces.errors",
    "load_sweep": "search_spaces.loading.sweep_file",
}

if not TYPE_CHECKING:  # else a type checker would accept any name

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
