from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.threads import one_thread


@pytest.fixture(autouse=True, scope="module")
def single_threaded() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for prepared data and models, which the tests of a module share."""
    return tmp_path_factory.mktemp("cache")
