"""Runs a contender as a process of its own, and measures its time and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
_INHERITED = ("RAY_", "TUNE_", "MLFLOW_", "OPTUNA_", "PYTHONDONTWRITEBYTECODE")
"""Prefixes of the caller's environment variables that would change the measurement."""
_WATCH_S = 0.25
_CLOSE_S = 30.0


@dataclass(frozen=True)
class Sample:
    """A process at one time: Unix seconds, memory in bytes, CPU seconds; without its children."""

    time: float
    rss: int
    cpu_s: float


@dataclass(frozen=True)
class Outcome:
    """Measurements of a process.

    Attributes:
        began: Unix seconds.
        wall_s: seconds from its start to its end, imports and shutdown included.
        samples: the process over time.
    """

    began: float
    wall_s: float
    samples: tuple[Sample, ...]

    @property
    def peak_rss(self) -> int:
        """The largest memory, in bytes."""
        return max((s.rss for s in self.samples), default=0)


def run(command: Sequence[str], log: Path, timeout_s: float, env: Mapping[str, str]) -> Outcome:
    """Run a command to its end, with its output in a file.

    Raises:
        SystemExit: it failed, or took too long; its child processes are ended too.
    """
    began, start, samples = time.time(), time.monotonic(), list[Sample]()
    with started(command, log, env) as process:
        while process.poll() is None:
            samples += _sample(process.pid)
            if time.monotonic() - start > timeout_s:
                raise SystemExit(f"not done after {timeout_s:g} s: {_tail(log)}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_WATCH_S)
        wall_s = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {_tail(log)}")
    return Outcome(began, wall_s, tuple(samples))


@contextlib.contextmanager
def started(
    command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, with its output in a file; it and its children are ended at the end."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(_INHERITED)}
    clean |= {"RAY_USAGE_STATS_ENABLED": "0", **env}
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=clean, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children, first by SIGINT, then by SIGKILL."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_CLOSE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for member in psutil.wait_procs(family, timeout=1)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def _sample(pid: int) -> list[Sample]:
    """One sample; none if the process has just ended."""
    try:
        process = psutil.Process(pid)
        cpu = process.cpu_times()
        return [Sample(time.time(), int(process.memory_info().rss), cpu.user + cpu.system)]
    except psutil.Error:
        return []


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([f"the end of {log}:", *lines[-25:]])
