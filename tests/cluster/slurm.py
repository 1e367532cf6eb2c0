"""A Slurm of its own on this machine: Debian's daemons, with a low and a high partition."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.cluster import ENV

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=30
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4096 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=high Nodes={host} PriorityTier=10 PreemptMode=OFF State=UP
"""


class Slurm:
    """The environment of its programs."""

    def __init__(self, folder: Path) -> None:
        self.env = ENV | {"SLURM_CONF": str(folder / "slurm.conf")}

    def __call__(self, *command: str) -> str:
        """What a program prints."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout.strip()


@contextmanager
def slurm(folder: Path, cpus: int = 2) -> Iterator[Slurm]:
    """Its daemons, for the duration of the block."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().partition(".")[0]
    values = {"host": host, "folder": folder, "cpus": cpus, "ports": free_ports(2)}
    (folder / "slurm.conf").write_text(_CONFIG.format(**values))
    key, made = folder / "munge.key", Slurm(folder)
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    folder.chmod(0o755)
    files = {"socket": "munge.socket", "pid-file": "m.pid", "log-file": "m.log", "seed-file": "m"}
    munge = [f"--{option}={folder / name}" for option, name in files.items()]
    with ExitStack() as stack:
        for daemon in (
            ["munged", "--foreground", "--force", f"--key-file={key}", *munge],
            ["slurmctld", "-D", "-i"],
            ["slurmd", "-D", "-N", host],
        ):
            stack.enter_context(_running(daemon, made.env, folder / f"{daemon[0]}.log"))
        deadline = time.monotonic() + 60
        while "idle" not in _nodes(made):
            assert time.monotonic() < deadline, (folder / "slurmctld.log").read_text()
            time.sleep(0.5)
        yield made


def why_not() -> str | None:
    """Why this machine cannot have one; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"apt-get install slurmctld slurmd munge: no {', '.join(missing)}" if missing else None


def _nodes(made: Slurm) -> str:
    asked = subprocess.run(["sinfo", "-h", "-o", "%t"], env=made.env, capture_output=True)
    return asked.stdout.decode()


@contextmanager
def _running(command: list[str], env: dict[str, str], log: Path) -> Iterator[None]:
    with (
        open(log, "wb") as output,
        subprocess.Popen(command, env=env, stdout=output, stderr=output) as daemon,
    ):
        try:
            yield
        finally:
            daemon.terminate()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
