"""Fixtures of the averaging tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.paths import SweepPaths


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    """An empty sweep folder."""
    return SweepPaths(tmp_path / "s")
