from collections.abc import Iterator

import pytest

from tests.threads import one_thread


@pytest.fixture(autouse=True, scope="module")
def single_threaded() -> Iterator[None]:
    with one_thread():
        yield
