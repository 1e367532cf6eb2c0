"""Named points at which a process is killed, fails or hangs, to test that nothing is lost there.

`TUNE_CRASH_AT=point` kills the process (SIGKILL) when it first passes the point, `point:n` when it
passes it for the n-th time. `point:n=ENOSPC` raises an OSError of that number there, from the n-th
time on. `point:n=hang` waits for ever. Without the variable, a point costs one dictionary look-up.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter
from functools import cache

from search_spaces.errors import UserError, suggest

VARIABLE = "TUNE_CRASH_AT"

_REPLACED = (
    *("trial.json", "manifest.json", "state.json", "owner.lock", "sweep.yaml"),
    "stages.json",
)
_APPENDED = ("reports.jsonl", "records.jsonl")
_CHECKPOINT = (
    *("opened", "local", "sent", "saved", "file-synced", "folders-synced", "replaced", "renamed"),
    *("durable", "discarding", "pruned"),
)
_DRIVER = (
    *("asked", "recorded", "claimed", "started", "heard", "decided", "answered", "finished"),
    *("told", "failed", "released"),
)
"""Points of a checkpoint and of the driver's loop, in their order."""
POINTS: frozenset[str] = frozenset(
    [
        *(f"{f}:{at}" for f in _REPLACED for at in ("written", "synced", "renamed", "durable")),
        *(f"{f}:{at}" for f in _APPENDED for at in ("written", "durable")),
        "study.journal:written",
        "mlflow.db:migrated",
        "mlflow.db:renamed",
        *(f"checkpoint:{at}" for at in _CHECKPOINT),
        *(f"mirror:{at}" for at in ("file", "files", "manifest", "discarding", "pruned")),
        *(f"driver:{at}" for at in _DRIVER),
    ]
)
"""All points. Those of files are `<file>:<the operation just done>`."""

KILL, HANG = "kill", "hang"
_NUMBERS = {name: number for number, name in errno.errorcode.items()}

_passed: Counter[str] = Counter()
_lock = threading.Lock()


def fault_point(point: str) -> None:
    """Kill this process, fail or hang if `TUNE_CRASH_AT` names this point.

    Raises:
        OSError: the variable asks for it.
        UserError: the variable names an unknown point or action, or a count below 1.
    """
    setting = os.environ.get(VARIABLE)
    if not setting:
        return
    name, nth, action = _parse(setting)
    if name != point:
        return
    with _lock:
        _passed[point] += 1
        passed = _passed[point]
    if passed == nth and action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if passed == nth and action == HANG:
        threading.Event().wait()
    if passed >= nth and action in _NUMBERS:
        raise OSError(_NUMBERS[action], os.strerror(_NUMBERS[action]))


@cache
def _parse(setting: str) -> tuple[str, int, str]:
    where, _, action = setting.partition("=")
    name, _, count = where.rpartition(":")
    if not count.isdigit():
        name, count = where, "1"
    if name not in POINTS:
        raise UserError(f"{VARIABLE}: unknown point '{name}'{suggest(name, POINTS)}")
    if int(count) < 1:
        raise UserError(f"{VARIABLE}: must be point or point:n with n >= 1, got '{setting}'")
    if action and action not in (HANG, *_NUMBERS):
        raise UserError(f"{VARIABLE}: must end in ={HANG} or a name of errno, got '{setting}'")
    return name, int(count), action or KILL
