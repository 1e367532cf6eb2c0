"""Ensures one driver per sweep: `owner.lock` names it, and a heartbeat shows that it is alive."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from results.paths import SweepPaths
from results.storage.atomic import write_atomic
from results.storage.fencing import Owner, read_lock
from results.storage.sharing import file_mode, use_modes_of
from search_spaces.checksum import add_json_checksum
from search_spaces.errors import DamagedRecordsError, UserError, afterwards
from search_spaces.files import read_regular
from search_spaces.spec.sweep import SweepSpec

HEARTBEAT_S = 5.0
STALE_S = 60.0
_LENGTH = 400
"""Characters of the lock file before its checksum. All have as many: a mount that caches the size
of a file would show a longer one cut off."""


@contextmanager
def acquire_lock(lock: Path) -> Iterator[Owner]:
    """Own a sweep while the block runs.

    Raises:
        UserError: another driver owns it and is alive.
    """
    use_modes_of(lock.parent)
    guard = Path(f"{lock}.guard")
    with FileLock(guard, mode=file_mode()):  # two drivers must not both find it free
        owner = Owner(lock, uuid.uuid4().hex, _next_fencing_number(lock, guard))
        mine = {**this_process(), "fence": owner.number, "token": owner.token, "released": False}
        mine["folder"] = lock.parent.stat().st_ino
        _write_lock(lock, mine)
    done = threading.Event()
    heartbeat = threading.Thread(
        target=_send_heartbeats, args=(owner, done), name="owner-heartbeat", daemon=True
    )
    heartbeat.start()

    def end() -> None:
        done.set()
        heartbeat.join()
        release_lock(lock, token=owner.token)

    with afterwards(end):
        yield owner


def release_lock(lock: Path, **mine: object) -> None:
    """Record that no driver owns the sweep any more.

    Args:
        lock: the lock file; nothing is changed if another owner wrote it.
        mine: members of the lock file that show whose it is.
    """
    if not lock.exists():  # somebody deleted the sweep
        return
    with FileLock(f"{lock}.guard", mode=file_mode()):
        held = read_lock(lock) or {}
        if mine.items() <= held.items():
            _write_lock(lock, {**held, "released": True})


def _write_lock(lock: Path, held: dict[str, Any]) -> None:
    write_atomic(lock, add_json_checksum(json.dumps(held).rjust(_LENGTH)).encode())


def current_driver(lock: Path) -> str | None:
    """The driver that runs the sweep now, as "process 12 on host"; None if there is none."""
    held = _living_driver(lock)
    return f"process {held['pid']} on {held['host']}" if held else None


def _living_driver(lock: Path, now: Callable[[], float] = time.time) -> dict[str, Any] | None:
    """The content of a lock, if its driver is alive; `now` is the clock of its heartbeats."""
    held = read_lock(lock)
    if held is None or not is_driver_alive(held, lambda: now() - lock.stat().st_mtime):
        return None
    inode = lock.parent.stat().st_ino
    is_copy = _is_here(held) and held.get("folder", inode) != inode  # `cp -r` of a running sweep
    return None if is_copy else held


def wait_for_sign_of_life(lock: Path, say: Callable[[str], None]) -> None:
    """Wait until a driver on another machine sends a heartbeat, or counts as dead.

    A command that is given again may come before the loss of the first one's machine is known.

    Args:
        lock: of the sweep.
        say: gets a line if it takes a while.
    """
    held = read_lock(lock)
    if held is None or _is_here(held) or (driver := current_driver(lock)) is None:
        return
    wait_for_heartbeat(
        f"{driver} drove it",
        lambda: current_driver(lock) == driver,
        lambda: lock.stat().st_mtime,
        STALE_S,
        say,
    )


def wait_for_heartbeat(
    who: str,
    is_alive: Callable[[], bool],
    last_beat: Callable[[], float | None],
    limit_s: float,
    say: Callable[[str], None],
) -> None:
    """Wait for another heartbeat of a driver, as long as it may be alive.

    Args:
        who: the driver, in words.
        is_alive: whether the same driver still counts as alive.
        last_beat: time of its last heartbeat, by any clock.
        limit_s: seconds after which it counts as dead.
        say: gets a line.
    """
    if not is_alive():
        return
    say(f"{who}; waiting for a heartbeat, {limit_s:.0f} s at most")
    first = last_beat()
    while is_alive() and last_beat() == first:
        time.sleep(1.0)


def last_sign_of_life(paths: SweepPaths, trials: Iterable[str]) -> float:
    """When the last driver, or one of these trials, wrote anything, in Unix seconds."""
    files = [paths.lock, paths.state]
    for trial in trials:
        files += [paths.trial(trial).record, paths.trial(trial).reports]
    return max((f.stat().st_mtime for f in files if f.exists()), default=0.0)


def refuse_if_driven(lock: Path, now: Callable[[], float] = time.time) -> None:
    """Raise `UserError` if a driver runs the sweep now, by the clock of its heartbeats."""
    if held := _living_driver(lock, now):
        raise UserError(
            f"{lock.parent}: driven by process {held['pid']} on {held['host']}; "
            f"wait for it, or end it (kill -INT {held['pid']}) and try again"
        )


def _next_fencing_number(lock: Path, guard: Path) -> int:
    def now() -> float:
        """By the clock of the storage, which heartbeats have: this machine's may be wrong."""
        os.utime(guard)
        return guard.stat().st_mtime

    refuse_if_driven(lock, now)
    return 1 + int((read_lock(lock) or {"fence": 0})["fence"])


def this_process() -> dict[str, Any]:
    """Data that identify this process, also after its end."""
    pid = os.getpid()
    here = {"host": socket.gethostname(), "machine": _machine()}
    return {**here, "pid": pid, "born": start_times(pid)[0]}


@cache
def _machine() -> str:
    """What tells machines and containers of one name apart, which have processes of their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return ""


def _is_here(held: dict[str, Any]) -> bool:
    """Whether the process that a lock names would be among those that this one sees."""
    machine: object = held.get("machine", _machine())  # an older version did not write it
    return bool(held["host"] == socket.gethostname()) and machine == _machine()


def _send_heartbeats(owner: Owner, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_S):
        with suppress(OSError):  # storage that fails for a moment; a write reports one that lasts
            if owner.holds_lock:
                os.utime(owner.lock)


def is_driver_alive(
    held: dict[str, Any], silent_s: Callable[[], float], stale_s: float = STALE_S
) -> bool:
    """Whether the driver that a lock names still runs the sweep.

    Args:
        held: the content of the lock.
        silent_s: returns seconds since the last heartbeat; only called for a driver elsewhere.
        stale_s: those after which such a driver counts as dead.
    """
    if held.get("released"):
        return False
    if _is_here(held):
        return held.get("born") in start_times(held["pid"])
    return silent_s() < stale_s


def start_times(pid: int) -> list[float]:
    """When a process started, because pids are reused; empty if there is none.

    On Linux in ticks since boot, which no change of the clock moves; last in Unix seconds, as an
    older version wrote it.
    """
    import psutil

    ticks = list[float]()
    with suppress(OSError):  # not Linux, or no such process
        ticks = [float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])]
    try:
        return [*ticks, psutil.Process(pid).create_time()]
    except (psutil.NoSuchProcess, ValueError):  # a pid below 0 of a damaged file
        return []


def sweep_state(paths: SweepPaths, spec: SweepSpec, finished: int) -> str:
    """`running`, `done`, `interrupted` or `damaged`; `finished` is a number of trials.

    A sweep is done if a session recorded the end, or was killed after a limit was reached; not
    while a configuration waits that was added since.
    """
    from results.sweep_folder.folder import read_state, total_elapsed_s

    trials, seconds = spec.budget.trials, spec.budget.time
    if current_driver(paths.lock):
        return "running"
    with suppress(OSError):  # removed meanwhile
        if any(b'"do":"add"' in read_regular(file) for file in paths.inbox.glob("[!.]*.json")):
            return "interrupted"
    try:
        ended = read_state(paths).ended or (
            trials is not None and finished >= max(trials, len(paths.trial_ids()))
        )
        over = seconds is not None and total_elapsed_s(paths) >= seconds
    except DamagedRecordsError:  # which `check_records` names
        return "damaged"
    return "done" if ended or over else "interrupted"
