"""How long checkpoints took to save and to load: `logs/attempt_*/checkpoints.jsonl`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from results.checkpoints.commit import Manifest
from results.trial_paths import TrialPaths


class CheckpointTime(BaseModel):
    """One checkpoint that was saved or loaded.

    Attributes:
        time: when it was done, Unix seconds.
        seconds: from the copy of the state until it is durable; from the search for the newest one
            until training goes on.
        bytes: of all files.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    what: Literal["save", "load"]
    step: int
    time: float
    seconds: float
    bytes: int


def append_time(
    paths: TrialPaths, attempt: int, what: Literal["save", "load"], seconds: float, made: Manifest
) -> None:
    """Append a line to the attempt's file, without fsync: it is only displayed."""
    size = sum(file.size for file in made.files.values())
    done = CheckpointTime(
        what=what, step=made.step, time=time.time(), seconds=round(seconds, 4), bytes=size
    )
    with suppress(OSError), open(paths.checkpoint_times(attempt), "a", encoding="utf-8") as f:
        f.write(f"{done.model_dump_json()}\n")


def parse_time(line: dict[str, Any]) -> CheckpointTime | None:
    """What a line says; None if it is damaged."""
    try:
        return CheckpointTime.model_validate(line)
    except ValidationError:
        return None
