"""What happens to a trial that breaks."""

from __future__ import annotations

from pydantic import Field

from search_spaces.sections.base import Seconds, Section


class FailureSpec(Section):
    """What happens to a trial that breaks."""

    max_retries: int = Field(2, ge=0, description="New attempts after a crash (attempts).")
    start_timeout: Seconds = Field(
        120.0, description="Longest wait for a trial's workers to start (seconds, or '2m')."
    )
