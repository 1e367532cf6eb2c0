"""A local Ray cluster that outlives the drivers that join it, and reports leftovers."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.object_store import CREDENTIALS

CANARY = "canary-5d1e7a90"
"""A secret that must not appear in any file."""

# One token for the cluster and its drivers. Bytecode is written: else each process compiles again.
ENV = {
    **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
    **CREDENTIALS,
    "HF_TOKEN": CANARY,
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "COLUMNS": "200",
}

HOLD = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Ray prints warnings to the standard output
import ray
from ray._private.state import actors
from ray.util import placement_group_table
started = ray.init(
    "local", num_cpus=int(sys.argv[1]), num_gpus=int(sys.argv[3]), log_to_driver=False,
    include_dashboard=False, _system_config=json.loads(sys.argv[2]),
)
address = started.address_info["address"]
print(json.dumps(address), file=answers, flush=True)
for line in sys.stdin:
    if line.strip() == "began":
        names = [a["ActorClassName"] for a in actors().values()]
        print(json.dumps(names), file=answers, flush=True)
        continue
    alive = [f"actor {a['ActorID']} {a['ActorClassName']}" for a in actors().values()
             if a["State"] != "DEAD"]
    held = [f"placement group {g['placement_group_id']} {g['name']}"
            for g in placement_group_table().values() if g["state"] != "REMOVED"]
    print(json.dumps(sorted(alive + held)), file=answers, flush=True)
"""

_DAEMONS = (
    *("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent"),
    *("_AutoscalingCoordinatorActor", "_StatsActor"),
)
"""What Ray itself keeps; Ray Train and Ray Data start the last two, once per cluster."""
PATIENCE_S = 180.0
"""Seconds until a killed process must be gone: Ray's agents took 100 s on a busy machine."""


@dataclass
class Cluster:
    """The driver that holds the cluster and runs nothing else."""

    address: str
    holder: subprocess.Popen[str]

    def left(self, before: Collection[str] = ()) -> list[str]:
        """Wait for actors, placement groups and processes of ended drivers to go; return the rest.

        Args:
            before: what existed already.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.here() - {*before}) and time.monotonic() < deadline:
            time.sleep(0.5)
        return sorted(found)

    def here(self) -> set[str]:
        """What exists now, each with its id."""
        found = {*self._ask("left"), *self._processes()}
        return {name for name in found if not name.endswith(_DAEMONS)}

    def began(self) -> list[str]:
        """The class of every actor that was ever started."""
        return self._ask("began")

    def _ask(self, what: str) -> list[str]:
        assert self.holder.stdin is not None
        assert self.holder.stdout is not None
        self.holder.stdin.write(f"{what}\n")
        self.holder.stdin.flush()
        found: list[str] = json.loads(self.holder.stdout.readline())
        return found

    def _processes(self) -> list[str]:
        """Processes in the cluster except Ray's daemons and idle workers."""
        below = psutil.Process(self.holder.pid).children(recursive=True)
        titles = {p.pid: _title(p).strip() for p in below}
        return [
            f"process {pid} {title}" for pid, title in titles.items() if title.startswith("ray::")
        ]


@contextmanager
def cluster(cpus: int = 2, gpus: int = 0, **system: Any) -> Iterator[Cluster]:
    """A cluster for the duration of the block.

    Args:
        cpus, gpus: numbers of CPUs and GPUs it announces.
        system: Ray's `_system_config`.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", HOLD, str(cpus), json.dumps(system), str(gpus)]
    with subprocess.Popen(
        command, text=True, env=ENV, stderr=subprocess.DEVNULL, **pipes
    ) as holder:
        yield Cluster(json.loads(holder.stdout.readline()), holder)
        holder.stdin.close()
        holder.wait(600)


def processes_with(name: str, value: str, patience_s: float = PATIENCE_S) -> list[str]:
    """Wait for this user's processes with an environment variable to end; return the rest.

    Processes of a sweep inherit its environment.
    """
    deadline = time.monotonic() + patience_s
    while (found := _with(f"{name}={value}")) and time.monotonic() < deadline:
        time.sleep(0.5)
    return [f"process {process.pid} {_title(process)}" for process in found]


def kill_all_with(name: str, value: str) -> None:
    """Send SIGKILL to all of them, as a power failure would."""
    for process in _with(f"{name}={value}"):
        with suppress(psutil.Error):  # it has just ended
            process.kill()


def _with(setting: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            own = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            environ = Path(f"/proc/{process.pid}/environ").read_bytes() if own else b""
        except (psutil.Error, OSError):  # ended, or another user's
            continue
        if setting.encode() in environ.split(b"\0"):
            found.append(process)
    return found


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:100]
    except psutil.Error:
        return ""
