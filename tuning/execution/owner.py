"""One driver per sweep: `owner.lock` says who, and a heartbeat says that it lives."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from results.files import write_atomic
from search_spaces.errors import UserError

HEARTBEAT_S = 5.0
STALE_S = 60.0


@contextmanager
def own(lock: Path) -> Iterator[int]:
    """Hold a sweep while the block runs; gives the fencing number, one more than any before.

    Raises:
        UserError: another driver that still lives holds it.
    """
    with FileLock(f"{lock}.guard"):  # two drivers must not both find it free
        mine = {**_me(), "fence": _next_fence(lock), "released": False}
        write_atomic(lock, json.dumps(mine).encode())
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(lock, done), name="owner-heartbeat", daemon=True)
    beat.start()
    try:
        yield mine["fence"]
    finally:
        done.set()
        beat.join()
        write_atomic(lock, json.dumps({**mine, "released": True}).encode())


def held_by(lock: Path) -> str | None:
    """Who drives the sweep now ("process 12 on host"), or None when nobody does."""
    held = _read(lock)
    if held is None or not _alive(lock, held):
        return None
    return f"process {held['pid']} on {held['host']}"


def _next_fence(lock: Path) -> int:
    held = _read(lock)
    if held is None:
        return 1
    if _alive(lock, held):
        raise UserError(
            f"{lock.parent}: driven by process {held['pid']} on {held['host']}; "
            f"wait for it, or end it (kill -INT {held['pid']}) and try again"
        )
    return int(held["fence"]) + 1


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "born": _born(os.getpid())}


def _beat(lock: Path, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_S):
        os.utime(lock)


def _read(lock: Path) -> dict[str, Any] | None:
    try:
        held = json.loads(lock.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return held if isinstance(held, dict) and {"pid", "host", "fence"} <= held.keys() else None


def _alive(lock: Path, held: dict[str, Any]) -> bool:
    if held.get("released"):
        return False
    if held["host"] == socket.gethostname():
        return _born(held["pid"]) is not None and _born(held["pid"]) == held.get("born")
    return time.time() - lock.stat().st_mtime < STALE_S


def _born(pid: int) -> float | None:
    """When a process started; with the pid it names a process for good."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None
