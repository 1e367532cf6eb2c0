"""Fixtures of the tests of a sweep's controller, search and folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuning.simulate import open_run, run_sweep
from tuning.controller.sweep import SweepController


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> SweepController:
    """A sweep of `make_spec()` that ran to its end without an interruption. Do not change it."""
    return run_sweep(tmp_path_factory.mktemp("uninterrupted"))


@pytest.fixture
def run(tmp_path: Path) -> SweepController:
    """The first session of a sweep of `make_spec()`, in the folder `s`."""
    return open_run(tmp_path / "s")
