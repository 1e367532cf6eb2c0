"""When a trial's state is saved."""

from __future__ import annotations

from pydantic import Field

from search_spaces.sections.base import Section


class CheckpointSpec(Section):
    """When a trial's state is saved."""

    every: int = Field(1, ge=1, description="Steps between checkpoints (steps).")
    keep: int = Field(2, ge=1, description="Newest checkpoints kept of each trial (checkpoints).")
