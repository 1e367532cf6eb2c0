"""The mean of LoRA adapters is the mean of their updates, not of their factors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from results.averaging import average, make_method
from results.averaging.stream import Averaged
from search_spaces.errors import UserError

A, B = (f"base_model.model.layers.0.q.lora_{x}.weight" for x in "AB")
Adapter = dict[str, NDArray[Any]]


def adapter(seed: int, rank: int = 2) -> Adapter:
    rng = np.random.default_rng(seed)
    sizes = {A: (rank, 7), B: (5, rank), "head": (3,)}
    return {name: rng.normal(size=size) for name, size in sizes.items()}


def mix(tmp_path: Path, *adapters: Adapter, method: str = "weighted", **more: Any) -> Averaged:
    for i, each in enumerate(adapters):
        save_file(each, tmp_path / str(i))
    sources = [tmp_path / str(i) for i in range(len(adapters))]
    return average(sources, tmp_path / "mean", method=make_method(method), **more)


def update(adapter: Adapter) -> NDArray[Any]:
    return adapter[B] @ adapter[A]


def test_mean_of_adapters_with_a_shared_factor_is_exact(tmp_path: Path) -> None:
    one, other = adapter(0), adapter(1)
    for shared in (A, B):
        made = mix(tmp_path, one, {**other, shared: one[shared]}, weights=[1, 3])
        expected = update(one) / 4 + update({**other, shared: one[shared]}) * 3 / 4
        np.testing.assert_allclose(update(load_file(tmp_path / "mean")), expected, rtol=1e-12)
        assert made.rank_loss == 0.0


def test_mean_of_other_adapters_is_the_nearest_of_their_rank(tmp_path: Path) -> None:
    one, other = adapter(0), adapter(1)
    made = mix(tmp_path, one, other)
    found = load_file(tmp_path / "mean")
    assert found[A].shape == one[A].shape
    assert found[B].shape == one[B].shape
    expected = (update(one) + update(other)) / 2
    lost = np.linalg.norm(update(found) - expected) / np.linalg.norm(expected)
    assert made.rank_loss == pytest.approx(lost)
    u, s, vt = np.linalg.svd(expected)
    best = (u[:, :2] * s[:2]) @ vt[:2]
    np.testing.assert_allclose(update(found), best, rtol=1e-9)
    mean_of_factors = (one[B] + other[B]) / 2 @ ((one[A] + other[A]) / 2)
    assert lost < np.linalg.norm(mean_of_factors - expected) / np.linalg.norm(expected)
    np.testing.assert_allclose(found["head"], (one["head"] + other["head"]) / 2)


def test_mean_of_copies_is_that_adapter(tmp_path: Path) -> None:
    one = adapter(0)
    mix(tmp_path, one, one, one, weights=[1, 2, 4])
    found = load_file(tmp_path / "mean")
    assert found.keys() == one.keys()
    assert all(found[name].tobytes() == one[name].tobytes() for name in one)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({B: None}, "has no partner"),
        ({B: np.zeros((5, 3))}, "differ in rank"),
        ({"x.lora_magnitude_vector": np.zeros(3)}, "an adapter that cannot be averaged"),
        ({"x.lora_B.bias": np.zeros(3)}, "an adapter that cannot be averaged"),
    ],
)
def test_adapters_refuse_updates_that_are_not_a_product(
    tmp_path: Path, changes: dict[str, NDArray[Any] | None], reason: str
) -> None:
    changed = {k: v for k, v in {**adapter(0), **changes}.items() if v is not None}
    with pytest.raises(UserError, match=reason):
        mix(tmp_path, changed, changed)


@pytest.mark.parametrize("method", ["median", "slerp"])
def test_adapters_refuse_methods_that_are_not_a_mean(tmp_path: Path, method: str) -> None:
    with pytest.raises(UserError, match=f"method {method} would act on the factors A and B separ"):
        mix(tmp_path, adapter(0), adapter(1), method=method)


def test_adapters_refuse_a_factor_above_the_memory_limit(tmp_path: Path) -> None:
    large = {A: np.zeros((2, 100_000)), B: np.ones((5, 2))}
    with pytest.raises(
        UserError, match=r"LoRA factor .* needs 13 MB of memory, but the limit is 1 MB"
    ):
        mix(tmp_path, large, large, max_memory=1_000_000)
