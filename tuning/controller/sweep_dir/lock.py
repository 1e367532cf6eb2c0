"""One driver per sweep: `owner.lock` says who, and a heartbeat says that it lives."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from results.storage.atomic import write_atomic
from results.storage.fencing import Owner, read_lock
from search_spaces.errors import UserError

HEARTBEAT_S = 5.0
STALE_S = 60.0


@contextmanager
def acquire_lock(lock: Path) -> Iterator[Owner]:
    """Hold a sweep while the block runs.

    Raises:
        UserError: another driver that still lives holds it.
    """
    with FileLock(f"{lock}.guard"):  # two drivers must not both find it free
        owner = Owner(lock, uuid.uuid4().hex, _next_fence(lock))
        mine = {**this_process(), "fence": owner.number, "token": owner.token, "released": False}
        write_atomic(lock, json.dumps(mine).encode())
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(owner, done), name="owner-heartbeat", daemon=True)
    beat.start()
    try:
        yield owner
    finally:
        done.set()
        beat.join()
        with FileLock(f"{lock}.guard"):
            if owner.holds_lock:
                write_atomic(lock, json.dumps({**mine, "released": True}).encode())


def current_driver(lock: Path) -> str | None:
    """Who drives the sweep now ("process 12 on host"), or None when nobody does."""
    held = read_lock(lock)
    if held is None or not is_driver_alive(held, lambda: lock.stat().st_mtime):
        return None
    return f"process {held['pid']} on {held['host']}"


def _next_fence(lock: Path) -> int:
    held = read_lock(lock)
    if held is None:
        return 1
    if is_driver_alive(held, lambda: lock.stat().st_mtime):
        raise UserError(
            f"{lock.parent}: driven by process {held['pid']} on {held['host']}; "
            f"wait for it, or end it (kill -INT {held['pid']}) and try again"
        )
    return int(held["fence"]) + 1


def this_process() -> dict[str, Any]:
    """This process, named for good."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "born": _born(os.getpid())}


def _beat(owner: Owner, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_S):
        if owner.holds_lock:
            os.utime(owner.lock)


def is_driver_alive(
    held: dict[str, Any], heard: Callable[[], float], stale_s: float = STALE_S
) -> bool:
    """Whether the driver that a lock names still drives.

    Args:
        held: what the lock says.
        heard: when it was heard of last, in Unix seconds; asked of one on another machine.
        stale_s: seconds of silence after which that one is taken for dead.
    """
    if held.get("released"):
        return False
    if held["host"] == socket.gethostname():
        return _born(held["pid"]) is not None and _born(held["pid"]) == held.get("born")
    return time.time() - heard() < stale_s


def _born(pid: int) -> float | None:
    """When a process started; with the pid it names a process for good."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None
