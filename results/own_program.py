"""Starts modules of installed packages as programs: this project's own helper processes, MLflow."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

PROGRAM = Path(__file__).parents[1]
"""The folder that holds the packages of this program."""
PACKAGES = frozenset(("search_spaces", "results", "trainables", "tuning"))
_STANDARD = {sysconfig.get_path("stdlib"), f"{sysconfig.get_path('stdlib')}/lib-dynload"}


def standard_library() -> list[str]:
    """The folders of Python's standard library on `sys.path`."""
    return [folder for folder in dict.fromkeys(sys.path) if folder in _STANDARD]


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
