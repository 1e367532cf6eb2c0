"""The Gaussian process, and the threads of the libraries that searchers use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  # has a library of its own
import torch
from optuna.samplers import GPSampler
from optuna.study import create_study
from threadpoolctl import threadpool_info, threadpool_limits

from search_spaces.spec.search import SearchSpec
from tuning.search.models.gp import GaussianProcess, expected_improvement, one_thread, standardise
from tuning.search.searchers import make_sampler


def surface(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


class TestGaussianProcess:
    @pytest.mark.parametrize("count", [30, 200], ids=["few", "more than decide on the kernel"])
    def test_predicts_held_out_points(self, count):
        x = np.random.default_rng(1).random((count, 3))
        y, _ = standardise(surface(x))
        process = GaussianProcess.fit(x[:-10], y[:-10])
        mean, deviation = process.predict(x[-10:])
        assert np.abs(mean - y[-10:]).max() < 0.35
        assert (np.abs(mean - y[-10:]) < 4 * deviation + 0.05).all()
        assert process.predict(x[:1])[1] < deviation.max()

    def test_believed_points_become_certain(self):
        x = np.random.default_rng(1).random((20, 2))
        process = GaussianProcess.fit(x, standardise(surface(x))[0])
        far = np.array([[3.0, 3.0]])
        mean, deviation = process.predict(far)
        believed, less = process.with_believed(far).predict(far)
        assert believed == pytest.approx(mean, abs=1e-3)
        assert less < deviation / 3

    def test_expected_improvement_prefers_high_mean_and_deviation(self):
        merit = expected_improvement(np.array([0, 1, 0]), np.array([0.1, 0.1, 1.0]), best=1.0)
        assert merit.argsort().tolist() == [0, 1, 2]

    def test_standardise_clips_a_diverged_value(self):
        values, _ = standardise(np.array([0.0, 0.1, 0.2, 0.3, -1e6]))
        assert values[3] - values[0] > 0.3


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
