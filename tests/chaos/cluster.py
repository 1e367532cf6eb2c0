"""A local Ray cluster that outlives the drivers that join it, and says what they left in it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

LOCK = "TUNE_CHAOS_LOCK"
"""Environment variable: a file whose lock is held while Ray works."""

CANARY = "canary-5d1e7a90"
"""A secret that no file may hold."""

# One token for the cluster and for who joins it.
ENV = {
    **os.environ,
    "HF_TOKEN": CANARY,
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "COLUMNS": "200",
}

HOLD = """
import json, sys
import ray
from ray._private.state import actors
from ray.util import placement_group_table
address = ray.init("local", num_cpus=int(sys.argv[1]), log_to_driver=False).address_info["address"]
print(json.dumps(address), flush=True)
for _ in sys.stdin:
    alive = [f"actor {a['ActorID']} {a['ActorClassName']}" for a in actors().values()
             if a["State"] != "DEAD"]
    held = [f"placement group {g['placement_group_id']} {g['name']}"
            for g in placement_group_table().values() if g["state"] != "REMOVED"]
    print(json.dumps(sorted(alive + held)), flush=True)
"""

_DAEMONS = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
_YIELD_S = 2.0
"""For who waits: the lock is not handed over, but taken by who comes first."""
PATIENCE_S = 180.0
"""How long what was killed may take to be gone: Ray's agents took 100 s on a busy machine."""


@dataclass
class Cluster:
    """The cluster's own driver, which runs nothing."""

    address: str
    holder: subprocess.Popen[str]

    def left(self, before: Collection[str] = ()) -> list[str]:
        """Actors, placement groups and processes of drivers that ended, after they had time.

        Args:
            before: what was there already.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.here() - {*before}) and time.monotonic() < deadline:
            time.sleep(0.5)
        return sorted(found)

    def here(self) -> set[str]:
        """What is there now, each with its id."""
        return {*self._ask(), *self._processes()}

    def _ask(self) -> list[str]:
        assert self.holder.stdin is not None
        assert self.holder.stdout is not None
        self.holder.stdin.write("what is left?\n")
        self.holder.stdin.flush()
        found: list[str] = json.loads(self.holder.stdout.readline())
        return found

    def _processes(self) -> list[str]:
        """What runs in the cluster beside its own daemons and workers that wait."""
        below = psutil.Process(self.holder.pid).children(recursive=True)
        titles = {p.pid: _title(p).strip() for p in below}
        return [
            f"process {pid} {title}"
            for pid, title in titles.items()
            if title.startswith("ray::") and not title.endswith(_DAEMONS)
        ]


@contextmanager
def cluster(cpus: int = 2) -> Iterator[Cluster]:
    """A cluster, until the block ends."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", HOLD, str(cpus)]
    with subprocess.Popen(
        command, text=True, env=ENV, stderr=subprocess.DEVNULL, **pipes
    ) as holder:
        with turn():
            address = json.loads(holder.stdout.readline())
        yield Cluster(address, holder)
        holder.stdin.close()
        holder.wait(60)


@contextmanager
def turn() -> Iterator[None]:
    """Held while Ray works, on a machine on which others wait for the same file's lock."""
    with open(os.environ.get(LOCK, os.devnull)) as file:
        if LOCK in os.environ:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    if LOCK in os.environ:
        time.sleep(_YIELD_S)


def processes_with(name: str, value: str, patience_s: float = PATIENCE_S) -> list[str]:
    """Processes of this user that were started with an environment variable, after they had time
    to end: what a sweep starts inherits its environment.
    """
    deadline = time.monotonic() + patience_s
    while (found := _with(f"{name}={value}")) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def _with(setting: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            own = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            environ = Path(f"/proc/{process.pid}/environ").read_bytes() if own else b""
        except (psutil.Error, OSError):  # ended, or another user's
            continue
        if setting.encode() in environ.split(b"\0"):
            found.append(f"process {process.pid} {_title(process)}")
    return found


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:100]
    except psutil.Error:
        return ""
