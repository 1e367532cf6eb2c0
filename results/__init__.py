"""Results of a sweep: records, checkpoints, analysis, averages and exports. No Ray.

A package of tune-platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.analysis.dataframes import Results, load

__all__ = ["Results", "load"]


def __getattr__(name: str) -> Any:
    """Import on first use: workers import this package, and must not wait for the analysis."""
    if name in __all__:
        from results.analysis import dataframes

        return getattr(dataframes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
