"""What comes out of a sweep: records, checkpoints, comparison, averaging, export. No Ray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.analysis.dataframes import Results


def load(path: Path | str) -> Results:
    """A sweep folder as pandas tables, for a notebook: `load("sweeps/llm").trials`.

    Raises:
        UserError: the folder is no sweep.
    """
    from results.analysis.dataframes import (
        read_tables,  # what a worker imports of results stays light
    )

    return read_tables(path)
