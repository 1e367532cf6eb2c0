"""Folders of prepared data that trials share: the first process builds one, the others wait."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from results.storage.atomic import write_atomic
from search_spaces.errors import UserError

log = logging.getLogger(__name__)

ALIVE_S = 10.0
LARGE_FILE = 8 << 20


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
    with _acquire(FileLock(folder.with_suffix(".lock")), alive):
        if folder.is_dir():
            return
        log.info("preparing data in %s", folder)
        building = folder.with_suffix(".building")
        shutil.rmtree(building, ignore_errors=True)  # left by a process that died
        building.mkdir()
        build(building)
        os.replace(building, folder)


def _acquire(lock: FileLock, alive: Callable[[], None]) -> AbstractContextManager[object]:
    """Acquires the lock, once the process that builds the folder has released it."""
    while True:
        alive()
        with suppress(Timeout):
            return lock.acquire(timeout=ALIVE_S)


def publish_settings(
    cache: Path,
    settings: Mapping[str, Any],
    build: Callable[[Path], None],
    *,
    key: str | None = None,
    prefix: str = "",
    alive: Callable[[], None] = lambda: None,
) -> Path:
    """Publish a folder of the cache that is named after a digest of its settings; returns it.

    Args:
        cache: folder of prepared data.
        settings: all that changes the content.
        build: as of `publish`.
        key: the digest that the settings must have; None: any.
        prefix: of the folder's name, before the digest.
        alive: as of `publish`.

    Raises:
        UserError: the settings have another digest than `key`.
    """
    made = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    if key not in (None, made):
        raise UserError(f"data: it is not what the model was trained on ({cache / str(key)})")
    publish(cache / f"{prefix}{made}", build, alive)
    return cache / f"{prefix}{made}"


def content_digest(path: Path, cache: Path) -> str:
    """SHA-256 of a file. The cache keeps that of a large one, by its name, size and times."""
    stat = path.stat()  # a copy may keep the time of its content, not that of its inode
    state = f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}\n{stat.st_ctime_ns}"
    known = cache / "digests" / text_digest(state)
    if known.exists():
        return known.read_text()
    with open(path, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if stat.st_size >= LARGE_FILE:
        write_atomic(known, digest.encode())
    return digest


def text_digest(*parts: str) -> str:
    """SHA-256 of texts one behind the other, in hex."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
    return digest.hexdigest()
