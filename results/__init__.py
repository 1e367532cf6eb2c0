"""What a sweep leaves behind: records, checkpoints, analysis, averages and exports. No Ray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.analysis.dataframes import Results

__all__ = ["Results", "load"]


def load(path: Path | str) -> Results:
    """Read a sweep folder into pandas tables, for a notebook: `load("sweeps/llm").trials`.

    Raises:
        UserError: the folder is not a sweep.
    """
    from results.analysis.dataframes import read_tables

    return read_tables(path)


def __getattr__(name: str) -> Any:
    """Import `Results` on first use: workers import this package, and must not load pandas."""
    if name == "Results":
        from results.analysis.dataframes import Results

        return Results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
