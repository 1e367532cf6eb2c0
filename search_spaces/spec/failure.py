"""What happens to a trial that breaks."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from search_spaces.spec.base import Seconds, Section

RemedyName = Literal[
    "retry", "retry_elsewhere", "shrink", "diverged", "infeasible", "fail_trial", "stop_sweep"
]


class FailureSpec(Section):
    """What happens to a trial that breaks."""

    max_retries: int = Field(
        2, ge=0, description="New attempts after failures that its own code is to blame for."
    )
    max_preemptions: int | None = Field(
        None, ge=0, description="New attempts after preemptions (attempts); none: no limit."
    )
    max_infrastructure: int = Field(
        5, ge=0, description="New attempts after a process or a machine was lost (attempts)."
    )
    on_oom: Literal["shrink", "infeasible", "fail_trial"] = Field(
        "shrink",
        description="When memory is not enough; shrink: half the micro-batch, the same batch.",
    )
    on_log: dict[str, RemedyName] = Field(
        default_factory=dict,
        description="Regular expression, searched in error and log, to what is to follow.",
    )
    diverged_above: float | None = Field(
        None, description="Value of the metric above which a trial has diverged; nan always has."
    )
    hang_timeout: Seconds = Field(
        600.0, description="Longest silence of a rank before its trial is restarted (or '10m')."
    )
    start_timeout: Seconds = Field(
        120.0, description="Longest wait for a trial's workers to start (seconds, or '2m')."
    )

    @field_validator("on_log")
    @classmethod
    def _compile(cls, on_log: dict[str, RemedyName]) -> dict[str, RemedyName]:
        for pattern in on_log:
            try:
                re.compile(pattern)
            except re.error as e:
                raise ValueError(f"'{pattern}' is no regular expression ({e})") from e
        return on_log
