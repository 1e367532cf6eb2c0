"""What the pages about a sweep show, and its records alone do not tell: searcher and commit."""

from __future__ import annotations

from dataclasses import replace

from results.paths import SweepPaths
from results.report.sweep_data import SweepData
from search_spaces.errors import UserError
from tuning.controller.sweep_dir.folder import read_state
from tuning.search.auto_searcher import choose_searcher


def with_search(data: SweepData, paths: SweepPaths) -> SweepData:
    """The data with the name of the searcher, and the commit of the code if it is known."""
    try:
        commit = read_state(paths).commit
    except UserError:  # of a sweep that no driver has begun
        commit = ""
    return replace(data, searcher=choose_searcher(data.spec).name, commit=commit)
