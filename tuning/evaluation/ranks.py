"""Runs a program of `trainables.launch` in fresh processes on this machine, without Ray."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

from results.own_program import module_command, ranks_command, start


def run_ranks(
    module: str, order: Path, workers: int, cpus: float, log: Path, timeout_s: float | None = None
) -> int | None:
    """Run a module with a file as its argument, with as many threads as a worker of Ray.

    Args:
        module: its full name.
        order: the file.
        workers: number of processes, which torchrun starts; one is started directly.
        cpus: of each.
        log: file for their output.
        timeout_s: seconds after which they are killed.

    Returns:
        The exit code; None if they were killed for the time.
    """
    several = partial(ranks_command, workers) if workers > 1 else module_command
    command = several(module, str(order))
    env = {**os.environ, "OMP_NUM_THREADS": str(max(1, int(cpus)))}
    with open(log, "wb") as output, start(command, output, env=env) as process:
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.returncode is None:  # too late, or Ctrl-C, which its ranks do not get
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
