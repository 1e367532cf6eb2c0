"""Folders of prepared data that trials share: the first process builds one, the others wait."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

ALIVE_S = 10.0


def publish(
    folder: Path, build: Callable[[Path], None], alive: Callable[[], None] = lambda: None
) -> None:
    """Build a folder under a lock and publish it by one rename, unless it is there.

    Args:
        folder: named after a digest of all that changes its content.
        build: writes the content into an empty folder.
        alive: called every now and then while another process builds.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _held(FileLock(folder.with_suffix(".lock")), alive):
        if folder.is_dir():
            return
        log.info("preparing data in %s", folder)
        building = folder.with_suffix(".building")
        shutil.rmtree(building, ignore_errors=True)  # left by a process that died
        building.mkdir()
        build(building)
        os.replace(building, folder)


def _held(lock: FileLock, alive: Callable[[], None]) -> AbstractContextManager[object]:
    """Acquires the lock, once the process that builds the folder has released it."""
    while True:
        alive()
        with suppress(Timeout):
            return lock.acquire(timeout=ALIVE_S)
