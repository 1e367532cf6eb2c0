"""Settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine an example takes any time; pytest's timeout limits a test.
settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any time")


def check_file(file: int | IO[Any]) -> None:
    """Fail as `fsync` does for a file that is not open."""
    os.fstat(file if isinstance(file, int) else file.fileno())


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Tests kill processes and never cut the power: ten milliseconds of each fsync are saved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", check_file)
        yield
