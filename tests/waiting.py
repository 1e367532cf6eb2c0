"""Waits for an effect of another thread or process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest


def wait_for(
    condition: Callable[[], object],
    process: subprocess.Popen[str] | None = None,
    seconds: float = 900.0,
) -> None:
    """Wait until a condition holds; fail if it does not in time, or if the process ends before."""
    deadline = time.monotonic() + seconds
    while not condition():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            said = ""
            if process is not None:
                process.kill()
                said = "\n".join(process.communicate())
            pytest.fail(f"the condition never held; {said}")
        time.sleep(0.02)
