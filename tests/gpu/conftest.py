"""Tests on a GPU: `make gpu`. Where torch sees no CUDA device, they are skipped by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.ray.conftest import Tune

LONGEST_S = 240.0
"""Limit for one test (seconds)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(LONGEST_S))


@pytest.fixture(scope="session", autouse=True)
def device_name() -> str:
    """The name of the device; every test of this folder needs one."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: torch.cuda.is_available() is False")
    return torch.cuda.get_device_properties(0).name


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    """The `tune` program; each of its sessions starts a Ray cluster of its own."""
    from tests.ray.conftest import Tune  # some tests of this folder need no Ray

    return Tune(tmp_path, address="")
