"""Fixtures of the tracking tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one MLflow database, which takes seconds to create."""
    return tmp_path_factory.mktemp("tracking storage")
