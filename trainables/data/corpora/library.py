"""The source files of this machine's Python standard library."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "idle_test"}
"""Tests and installed packages are not the library."""


def library_files(without: str) -> list[Path]:
    """Paths below `LIBRARY`, in an order that mixes the packages, the same on all machines.

    Args:
        without: name of folders to skip, too.
    """
    found: list[Path] = []
    for folder, folders, files in os.walk(LIBRARY):
        folders[:] = set(folders) - _SKIPPED - {without}  # before walking them: they can be huge
        found += (Path(folder, f).relative_to(LIBRARY) for f in files if f.endswith(".py"))
    return sorted(found, key=lambda path: hashlib.sha256(path.as_posix().encode()).hexdigest())
