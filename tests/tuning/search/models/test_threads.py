"""The threads of the libraries that the searchers use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import scipy.linalg  # noqa: F401  # has a library of its own
import torch
from optuna.samplers import GPSampler
from optuna.study import create_study
from threadpoolctl import threadpool_info, threadpool_limits

from search_spaces.spec.search import SearchSpec
from tuning.search.models.gp import one_thread
from tuning.search.searchers import make_sampler


def threads(*kinds: str) -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] in kinds}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    with threadpool_limits(2):
        torch.set_num_threads(2)
        yield
    torch.set_num_threads(before)


def test_function_has_one_thread_of_numpy_and_scipy() -> None:
    assert threads("blas") == {2}
    assert one_thread(threads)("blas") == {1}
    assert threads("blas") == {2}


def test_proposal_of_gp_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []

    def relative(*_: Any) -> dict[str, Any]:
        seen.append(threads("blas", "openmp"))
        return {}

    monkeypatch.setattr(GPSampler, "sample_relative", relative)
    sampler = make_sampler(SearchSpec(name="gp", startup_trials=1), seed=0)
    create_study(sampler=sampler).ask().suggest_float("x", 0, 1)
    assert seen == [{1}]
    assert threads("blas", "openmp") == {2}
