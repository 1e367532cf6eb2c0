"""Describes the machine on which a benchmark ran."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import psutil


def machine() -> str:
    """Cores, memory, operating system and versions, in words."""
    names = ("ray", "torch", "optuna", "mlflow")
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{cores()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in names)
    )


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
