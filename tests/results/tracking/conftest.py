"""Fixtures of the tracking tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.paths import SweepPaths


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one MLflow database, which takes seconds to create."""
    return tmp_path_factory.mktemp("tracking storage")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    """A sweep folder without trials."""
    paths = SweepPaths(tmp_path / "sweep")
    paths.trials.mkdir(parents=True)
    return paths
