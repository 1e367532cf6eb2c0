"""Tests on two hosts, which `make cluster` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.hosts import why_not
from tests.ray.conftest import LONGEST_S


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    reason = why_not() if here else None
    for item in here:
        item.add_marker(pytest.mark.ray)
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(LONGEST_S))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
