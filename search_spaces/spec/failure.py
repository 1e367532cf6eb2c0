"""The `failure` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from search_spaces.patterns import check_patterns
from search_spaces.spec.base import Seconds, Section

RemedyName = Literal[
    "retry", "retry_elsewhere", "shrink", "diverged", "infeasible", "fail_trial", "stop_sweep"
]


Notices = Literal["auto", "none", "aws", "gcp", "azure"]


class FailureSpec(Section):
    """Retries of failed trials, by cause and remedy."""

    max_retries: int = Field(
        2, ge=0, description="New attempts after failures of the trial's own code (attempts)."
    )
    max_preemptions: int | None = Field(
        None, ge=0, description="New attempts after preemptions (attempts); none: no limit."
    )
    preemption_notices: Notices = Field(
        "auto",
        description="Cloud whose notices that a machine is taken away are read from its metadata "
        "server, so that its trials save and leave; auto: the cloud of the machine, if any.",
    )
    max_infrastructure: int = Field(
        5, ge=0, description="New attempts after the loss of a process or a machine (attempts)."
    )
    stop_after_same: int | None = Field(
        3,
        ge=0,
        description="Trials that fail in the same way, before any trial has a value, after which "
        "the session ends; 0 or null: never.",
    )
    on_oom: Literal["shrink", "infeasible", "fail_trial"] = Field(
        "shrink",
        description="When memory is exhausted; shrink: half the micro-batch, the same batch; "
        "where that is impossible and layout is auto, a layout that needs less.",
    )
    on_log: dict[str, RemedyName] = Field(
        default_factory=dict,
        description="Regular expression to a remedy, applied when error or log match it.",
    )
    diverged_above: float | None = Field(
        None, description="Value of the metric above which a trial has diverged; nan always does."
    )
    hang_timeout: Seconds | Literal["auto"] = Field(
        "auto",
        description="Longest time without a report or heartbeat of a rank; output of user code "
        "counts too (seconds, or '10m'). auto: 10 minutes; one hour for user code without "
        "heartbeats.",
    )
    stop_grace: Seconds = Field(
        10.0,
        description="Longest time that a command may take to end after SIGTERM (seconds, or '2m').",
    )
    start_timeout: Seconds = Field(
        120.0, description="Longest wait for a trial's workers to start (seconds, or '2m')."
    )

    @field_validator("on_log")
    @classmethod
    def _compile(cls, on_log: dict[str, RemedyName]) -> dict[str, RemedyName]:
        if on_log:
            check_patterns(on_log)
        return on_log
