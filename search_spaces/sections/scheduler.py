"""Which trials are stopped early."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from search_spaces.sections.base import Section


class SchedulerSpec(Section):
    """Which trials are stopped early."""

    name: Literal["asha", "none"] = Field("asha", description="Scheduler; none stops no trial.")
    time_attr: str = Field(
        "step", min_length=1, description="What of a report counts progress; its unit is a step."
    )
    grace_period: int = Field(
        1, ge=1, description="Steps before a trial may be stopped; the first rung (steps)."
    )
    max_t: int | None = Field(
        None,
        ge=1,
        validate_default=True,
        description="Step at which a trial is complete; asha needs it (steps).",
    )
    reduction_factor: float = Field(
        3, gt=1, description="One trial in this many goes on at each rung; rungs grow by it."
    )

    @field_validator("max_t")
    @classmethod
    def _complete(cls, max_t: int | None, info: ValidationInfo) -> int | None:
        name, grace = info.data.get("name"), info.data.get("grace_period")
        if name == "asha" and max_t is None:
            raise ValueError("asha needs max_t, the step at which a trial is complete")
        if max_t is not None and grace is not None and max_t < grace:
            raise ValueError(f"must be >= grace_period ({grace}), got {max_t}")
        return max_t
