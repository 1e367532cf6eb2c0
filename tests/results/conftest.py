"""Fixtures of the tests of results."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.trial_paths import TrialPaths
from tests.object_store import s3_server


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    """An empty sweep folder."""
    return SweepPaths(tmp_path / "digits-1")


@pytest.fixture
def paths(tmp_path: Path) -> TrialPaths:
    """An empty trial folder."""
    return TrialPaths(tmp_path / "t0000")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of an object storage server."""
    with s3_server() as url:
        yield url
