"""What pages about a sweep show, and its records do not tell: searcher, commit, sessions."""

from __future__ import annotations

from dataclasses import replace

from results.paths import SweepPaths
from results.report.sweep_data import SweepData
from results.sweep_folder.folder import read_state
from search_spaces.errors import UserError
from tuning.search.auto import choose_searcher


def with_search(data: SweepData, paths: SweepPaths) -> SweepData:
    """The data with the searcher's name, and the code's commit, sessions and end, if known."""
    data = replace(data, searcher=choose_searcher(data.spec).name)
    try:
        state = read_state(paths)
    except UserError:  # of a sweep that no driver has begun
        return data
    return replace(data, commit=state.commit, sessions=state.started, ended=state.ended)
