"""A checkpoint waits for room on a full disk, for a while; nothing whole is deleted for it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

from results.checkpoints.commit import MANIFEST, Manifest
from results.paths import TrialPaths
from results.storage.atomic import DISK_FULL_ERRNOS, free_bytes

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
_SAID = re.compile(r"No space left|os error 28|quota exceeded|File too large", re.IGNORECASE)
"""How safetensors, torch and our own writers say it: not all of them with an `errno`."""


class DiskFullError(Exception):
    """The disk stayed full for as long as a checkpoint may wait."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk is full, or a quota reached."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        return True
    return _SAID.search(str(error)) is not None


def retry_when_full(write: Callable[[], None], paths: TrialPaths, step: int, wait_s: float) -> None:
    """Write; where the disk is full, say so and write again until it goes, or the time is over.

    Args:
        write: a whole write, that may be done again.
        paths: of the trial.
        step: of the checkpoint.
        wait_s: seconds to wait at most.

    Raises:
        DiskFullError: it stayed full; with what was needed and what was free.
    """
    until, pause, first = time.monotonic() + wait_s, FIRST_PAUSE_S, True
    while True:
        try:
            return write()
        except Exception as e:
            if not is_full(e):
                raise
            said = f"step {step}: the disk is full, {_arithmetic(paths)}"
            if time.monotonic() >= until:
                waited = f"waited {wait_s:.0f} s for room (checkpoint.wait_for_room)"
                raise DiskFullError(f"checkpoint of {said}; {waited}") from e
            if first:
                log.warning("checkpoint of %s; waiting up to %.0f s for room", said, wait_s)
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause, first = min(2 * pause, LONGEST_PAUSE_S), False


def _arithmetic(paths: TrialPaths) -> str:
    """What a checkpoint needs, by the newest that is there, and what is free."""
    free = f"{free_bytes(paths.checkpoints)} bytes are free in {paths.checkpoints}"
    needed = _size(paths.newest_checkpoint())
    return free if needed is None else f"the one before has {needed} bytes, {free}"


def _size(folder: Path | None) -> int | None:
    try:
        text = (folder / MANIFEST).read_bytes() if folder else b""
        return sum(e.size for e in Manifest.model_validate_json(text).files.values())
    except (OSError, ValueError):
        return None
