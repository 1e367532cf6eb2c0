"""Contenders of a benchmark, which take turns on a machine: one window of each at a time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.machine import cores
from benchmarks.training.case import RESULT, TURN, Case, Result


class Run:
    """One run of a contender in new processes, one for each worker, which takes turns."""

    def __init__(
        self,
        name: str,
        case: Case,
        folder: Path,
        workers: int,
        timeout_s: float,
        program: str = "benchmarks.training",
    ) -> None:
        self.name, self._timeout_s, self._folder = name, timeout_s, folder
        command = [sys.executable, "-m", program, "--run", name, case.dumps()]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._log = (folder / f"{name}.log").open("w+")
        self._ranks: list[subprocess.Popen[str]] = []
        self._peaks = [0.0] * workers
        threads = str(max(1, cores() // workers))  # as Ray and torchrun set it: more only wait
        for rank in range(workers):
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": workers, "MASTER_PORT": port}
            env = {**os.environ, "OMP_NUM_THREADS": threads}
            if workers > 1:
                env |= {"MASTER_ADDR": "127.0.0.1", **{k: str(v) for k, v in ranks.items()}}
            out = subprocess.PIPE if rank == 0 else self._log
            self._ranks.append(
                subprocess.Popen(
                    [*command, str(folder)],
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=self._log,
                    env=env,
                    text=True,
                )
            )

    def turn(self) -> bool:
        """Wait for the end of a window; whether another one follows after `go`."""
        timer = threading.Timer(self._timeout_s, self.close)
        timer.start()
        try:
            for line in self._ranks[0].stdout or ():
                self._log.write(line)
                if line == TURN or line.startswith(RESULT):
                    self._last = line
                    self._note_memory()
                    return line == TURN
        finally:
            timer.cancel()
        self._last = ""
        return False

    def go(self) -> None:
        """Begin the next window."""
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()

    def result(self) -> Result:
        """After the last window."""
        if self._last:
            return replace(Result(**json.loads(self._last)), peaks_mib=self._peaks)
        self._log.seek(0)
        lines = self._log.read().splitlines()
        return Result(self.name, error="\n".join(lines[-12:]) or "no result")

    def _note_memory(self) -> None:
        for rank, process in enumerate(self._ranks):
            grown = memory_mib("VmHWM", process.pid) - self._before(rank)
            self._peaks[rank] = max(self._peaks[rank], grown)

    def _before(self, rank: int) -> float:
        file = before_file(self._folder, self.name, rank)
        return float(file.read_text()) if file.exists() else 0.0

    def close(self) -> None:
        """Kill what is left."""
        for rank in self._ranks:
            rank.kill()


def measure(
    names: Sequence[str],
    case: Case,
    folder: Path,
    workers: int,
    timeout_s: float,
    program: str = "benchmarks.training",
) -> list[Result]:
    """One run of each contender of a program, one window of each at a time.

    The speed of a machine changes within seconds: windows of one turn can be compared.
    """
    runs = [Run(name, case, folder, workers, timeout_s, program) for name in names]
    try:
        going = [run for run in runs if run.turn()]
        while going:
            for run in list(going):
                run.go()
                if not run.turn():
                    going.remove(run)
        return [run.result() for run in runs]
    finally:
        for run in runs:
            run.close()


def before_file(folder: Path, name: str, rank: int) -> Path:
    """Where a rank writes how much memory it has before it has a model, in MiB."""
    return folder / f"{name}-{rank}.memory"


def memory_mib(key: str, pid: int | str = "self") -> float:
    """A line of /proc/PID/status in MiB: VmRSS is resident memory, VmHWM the most of it; 0 if there
    is none.
    """
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [line.split() for line in lines if line.startswith(f"{key}:")]
    return float(found[0][1]) / 1024 if found else 0.0
