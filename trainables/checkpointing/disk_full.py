"""Retries writing a checkpoint while the disk is full. Deletes no intact checkpoint for it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from results.checkpoints.commit import MANIFEST, Manifest
from results.storage.atomic import DISK_FULL_ERRNOS, free_space
from results.trial_paths import TrialPaths

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
_MESSAGES = re.compile(r"No space left|os error 28|quota exceeded|File too large", re.IGNORECASE)
"""Messages of safetensors, torch and our own writers; not all of their errors have an `errno`."""


class DiskFullError(Exception):
    """The disk was full for longer than a checkpoint may wait."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk is full or a quota is reached."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        return True
    return _MESSAGES.search(str(error)) is not None


def retry_when_full(write: Callable[[], T], paths: TrialPaths, step: int, wait_s: float) -> T:
    """Write, and retry while the disk is full, for a limited time. The first failure is logged.

    Args:
        write: can be called again after a failure.
        paths, step: the trial and the step of the checkpoint, for messages.
        wait_s: longest time to wait, in seconds.

    Returns:
        The result of `write`.

    Raises:
        DiskFullError: it stayed full; the message has the needed and the free bytes.
    """
    until, pause, first = time.monotonic() + wait_s, FIRST_PAUSE_S, True
    while True:
        try:
            return write()
        except Exception as e:
            if not is_full(e):
                raise
            problem = f"step {step}: the disk is full, {_needed_and_free(paths)}"
            if time.monotonic() >= until:
                waited = f"waited {wait_s:.0f} s for free space (checkpoint.wait_for_room)"
                raise DiskFullError(f"checkpoint of {problem}; {waited}") from e
            if first:
                log.warning(
                    "checkpoint of %s; waiting up to %.0f s for free space", problem, wait_s
                )
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause, first = min(2 * pause, LONGEST_PAUSE_S), False


def _needed_and_free(paths: TrialPaths) -> str:
    """Size of the newest checkpoint, and free bytes."""
    free = f"{paths.checkpoints} has {free_space(paths.checkpoints)[0]}"
    needed = _size(paths.newest_checkpoint())
    return free if needed is None else f"the one before has {needed} bytes, {free}"


def _size(folder: Path | None) -> int | None:
    try:
        text = (folder / MANIFEST).read_bytes() if folder else b""
        return sum(e.size for e in Manifest.model_validate_json(text).files.values())
    except (OSError, ValueError):
        return None
