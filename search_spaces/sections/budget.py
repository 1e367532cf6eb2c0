"""When the search ends."""

from __future__ import annotations

from pydantic import Field

from search_spaces.sections.base import Seconds, Section


class BudgetSpec(Section):
    """When the search ends: at whichever limit comes first."""

    trials: int | None = Field(
        None, ge=1, description="Trials in all; a space of only grid_search gives its own (trials)."
    )
    time: Seconds | None = Field(
        None, description="Wall-clock time over all runs of the sweep (seconds, or '90s', '2h')."
    )
