"""The `checkpoint` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from search_spaces.spec.base import EnvText, Seconds, Section


class CheckpointSpec(Section):
    """Saved states of a trial: interval, number and place."""

    every: int = Field(1, ge=1, description="Steps between checkpoints (steps).")
    mode: Literal["async", "sync"] = Field(
        "async",
        description="async: training waits while its state is copied; sync: until it is saved.",
    )
    wait_for_room: Seconds = Field(
        300.0,
        description="Longest wait of a checkpoint on a full disk, at most half of "
        "failure.hang_timeout; then its trial fails (seconds, or '5m').",
    )
    mirror: EnvText | None = Field(
        None,
        description="Object storage for a second copy of checkpoints and records, in case the "
        "machine and its disk are lost: s3://bucket/prefix, gs://…, abfs://…; ${ENV} allowed.",
    )
    keep: int = Field(2, ge=1, description="Newest checkpoints kept of each trial (checkpoints).")
    keep_best: int = Field(
        0, ge=0, description="Best checkpoints by the metric, kept beside the newest (checkpoints)."
    )
    keep_rungs: bool = Field(
        False, description="Save and keep a checkpoint at each rung of the scheduler."
    )
