"""The pipeline of `small`, run once."""

from __future__ import annotations

import pytest

from results.records.pipeline import PipelinePaths
from tests.tuning.pipelines import small


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> PipelinePaths:
    """The pipeline, run without an interruption, at its end. Do not change it."""
    return small.run(small.write(tmp_path_factory.mktemp("small")))
