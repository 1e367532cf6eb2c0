"""Starts processes: this project's own helpers, MLflow, and what acts after a driver's death."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

PROGRAM = Path(__file__).parents[1]
"""The folder that holds the packages of this program."""
PACKAGES = frozenset(("search_spaces", "results", "trainables", "tuning"))


def standard_library() -> list[str]:
    """The folders of Python's standard library on `sys.path`."""
    import sysconfig  # slow

    standard = sysconfig.get_path("stdlib")
    known = {standard, f"{standard}/lib-dynload"}
    return [folder for folder in dict.fromkeys(sys.path) if folder in known]


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a process of its own.

    Without `-P`, Python would look for modules in the working directory first, and a file of the
    user's such as `results.py` or `queue.py` would take the place of the one that is meant.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def ranks_command(ranks: int, module: str, *arguments: str) -> list[str]:
    """The command that runs a module in so many ranks on this machine, which torchrun starts."""
    ranked = ("--standalone", f"--nproc-per-node={ranks}", "--no-python")
    return module_command("torch.distributed.run", *ranked, *module_command(module, *arguments))


def start(
    command: Sequence[str],
    log: IO[bytes] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    fds: Collection[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in the background: signals to this one's group or terminal do not reach it.

    Args:
        log: gets its output; default: it is dropped.
        env: default: this process's.
        fds: open files of this process that it gets, too.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log or subprocess.DEVNULL,
        stderr=log or subprocess.DEVNULL,
        start_new_session=True,
        env=env,
        pass_fds=fds,
    )


class AfterDeath:
    """Runs a command after this process was killed, unless it is cancelled before.

    Args:
        command: that is run.
        delay_s: seconds that it waits.
        stderr: of the command; default: this process's.
    """

    def __init__(
        self, command: Sequence[str], delay_s: float = 0.0, stderr: int | None = None
    ) -> None:
        # the pipe is closed without a line: this process is dead
        script = f'read _ || {{ sleep {delay_s:g}; exec "$@"; }}'
        self._process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )

    def cancel(self) -> None:
        """Run nothing."""
        self._process.communicate(b"ended\n")
