"""The `checkpoint` section."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

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
    local: EnvText | None = Field(
        None,
        description="Folder on a fast disk of each machine, an absolute path. Ranks write their "
        "parts of a checkpoint there, and copy them to the sweep folder while training goes on; "
        "${ENV} allowed.",
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

    @field_validator("local")
    @classmethod
    def _is_absolute(cls, path: str | None) -> str | None:
        if path is not None and not Path(path).is_absolute():
            raise ValueError(f"must be an absolute path: it is on every machine, got {path}")
        return path
