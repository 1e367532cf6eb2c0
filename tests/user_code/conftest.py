"""Programs that run as trials, without Ray."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search_spaces.spec.command import name_of
from tests.trainables.local import RecordingChannel, run_trial

PROGRAMS = Path(__file__).parent / "programs"


def run_command(
    folder: Path, command: Sequence[str], config: dict[str, Any] | None = None, **options: Any
) -> RecordingChannel:
    """Run a command as a trial here; options are those of `tests.trainables.local.run_trial`."""
    return run_trial(folder, name_of(command), config or {}, **options)


def python(code: str) -> list[str]:
    """A command that runs Python code."""
    return [sys.executable, "-c", code]


def is_running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def pids_in(folder: Path) -> list[int]:
    """Process ids that a program wrote as names of files."""
    return [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.is_dir() else []
