"""The contract that every averaging method keeps, and the result of each method."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

import results.averaging.stream
from results.averaging import METHODS, average, make_method
from results.averaging.stack import GRAIN, ArrayStack
from results.averaging.task_vectors import kth_largest
from search_spaces.errors import UserError

quick = settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
Model = dict[str, NDArray[Any]]

NUM_MODELS = dict.fromkeys(METHODS, 3) | {"slerp": 2}
DEPENDS_ON_ORDER = ("ema",)


def model(seed: int, size: int = 40) -> Model:
    rng = np.random.default_rng(seed)
    tied = rng.normal(size=size).astype(np.float32)
    return {
        "embed": tied,
        "head": tied.copy(),
        "w": rng.normal(size=(4, size)).astype(np.float32),
        "bn.running_var": rng.uniform(0.01, 0.5, size).astype(np.float32),
        "bn.num_batches_tracked": np.array(7),
    }


def mix(
    tmp_path: Path, name: str, models: list[Model], base: Model | None = None, **more: Any
) -> Model:
    options = more.pop("options", {})
    sources = [tmp_path / f"{i}.safetensors" for i in range(len(models))]
    for path, each in zip(sources, models, strict=True):
        save_file(each, path)
    save_file(base or models[0], tmp_path / "base.safetensors")
    average(
        sources,
        tmp_path / "out",
        method=make_method(name, options),
        base=tmp_path / "base.safetensors",
        **more,
    )
    return load_file(tmp_path / "out")


def same(a: Model, b: Model) -> bool:
    return a.keys() == b.keys() and all(a[k].tobytes() == b[k].tobytes() for k in a)


@pytest.mark.parametrize("name", METHODS)
class TestMethod:
    """Every method in `METHODS`, with as many models as `NUM_MODELS` says."""

    @quick
    @given(seed=st.integers(0, 1000))
    def test_average_of_copies_is_that_model(self, tmp_path: Path, name: str, seed: int) -> None:
        one, count = model(seed), NUM_MODELS[name]
        assert same(mix(tmp_path, name, [one] * count, base=one), one)
        if not make_method(name).needs_base:
            assert same(mix(tmp_path, name, [one] * count, base=model(seed + 1)), one)

    @quick
    @given(seed=st.integers(0, 1000))
    def test_average_does_not_depend_on_order(self, tmp_path: Path, name: str, seed: int) -> None:
        if name in DEPENDS_ON_ORDER:
            pytest.skip("depends on order by design")
        models = [model(seed + i) for i in range(NUM_MODELS[name])]
        base = model(seed + 9)
        made = [mix(tmp_path, name, list(p), base) for p in permutations(models)]
        assert all(same(made[0], other) for other in made[1:])

    def test_average_does_not_depend_on_the_piece_size(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        models = [model(i, 2 * GRAIN + 5) for i in range(NUM_MODELS[name])]
        whole = mix(tmp_path, name, models, model(9, 2 * GRAIN + 5))
        monkeypatch.setattr(results.averaging.stream, "MAX_PIECE", GRAIN)
        assert same(mix(tmp_path, name, models, model(9, 2 * GRAIN + 5)), whole)

    def test_tied_weights_stay_tied(self, tmp_path: Path, name: str) -> None:
        models = [model(i) for i in range(NUM_MODELS[name])]
        out = mix(tmp_path, name, models, model(9))
        assert (out["embed"] == out["head"]).all()

    def test_batch_norm_statistics_are_averaged(self, tmp_path: Path, name: str) -> None:
        models = [model(i) for i in range(2)]
        far = {**model(9), "bn.running_var": np.full(40, 5.0, np.float32)}
        out = mix(tmp_path, name, models, far)
        shares = make_method(name).shares(2, None)
        parts = zip(shares, models, strict=True)
        expected = sum(s * m["bn.running_var"].astype(float) for s, m in parts)
        np.testing.assert_allclose(out["bn.running_var"], expected, rtol=1e-6)
        assert out["bn.num_batches_tracked"] == 7

    def test_nan_is_refused(self, tmp_path: Path, name: str) -> None:
        bad = model(1)
        bad["w"][0, 3] = np.nan
        with pytest.raises(UserError, match="tensor 'w' holds a NaN or an infinity"):
            mix(tmp_path, name, [model(0), bad], model(9))
        assert not (tmp_path / "out").exists()

    def test_unknown_options_are_refused(self, name: str) -> None:
        with pytest.raises(UserError, match=rf"method {name}.*'no_such'"):
            make_method(name, {"no_such": 1})


def vectors(tmp_path: Path, name: str, *rows: list[float], **more: Any) -> list[float]:
    """One tensor of each model; the common start is zero."""
    models = [{"w": np.array(row)} for row in rows]
    base = {"w": np.zeros(len(rows[0]))}
    found: list[float] = mix(tmp_path, name, models, base, **more)["w"].tolist()
    return found


def test_weighted_mean(tmp_path: Path) -> None:
    assert vectors(tmp_path, "weighted", [0.0, 8.0], [4.0, 0.0], weights=[1, 3]) == [3.0, 2.0]


def test_ema_gives_the_last_model_the_most_weight(tmp_path: Path) -> None:
    found = vectors(tmp_path, "ema", [1.0], [2.0], [4.0], options={"decay": 0.5})
    assert found == [0.5 * (0.5 * 1 + 0.5 * 2) + 0.5 * 4]


def test_slerp_keeps_the_norm(tmp_path: Path) -> None:
    assert vectors(tmp_path, "slerp", [1.0, 0.0], [0.0, 1.0]) == pytest.approx([0.5**0.5] * 2)
    third = vectors(tmp_path, "slerp", [1.0, 0.0], [0.0, 1.0], weights=[2, 1])
    assert third == pytest.approx([np.cos(np.pi / 6), np.sin(np.pi / 6)])
    assert vectors(tmp_path, "slerp", [0.0, 0.0], [2.0, 4.0]) == [1.0, 2.0]


def test_median_ignores_an_outlier(tmp_path: Path) -> None:
    assert vectors(tmp_path, "median", [1.0, 1.0], [2.0, 1e9], [3.0, 2.0]) == [2.0, 2.0]
    assert vectors(tmp_path, "median", [1.0], [2.0], [4.0], [1e9]) == [3.0]


def test_trimmed_mean_leaves_out_both_ends(tmp_path: Path) -> None:
    rows = [[-1e9], [1.0], [2.0], [6.0], [1e9]]
    assert vectors(tmp_path, "trimmed_mean", *rows) == [3.0]
    assert vectors(tmp_path, "trimmed_mean", *rows, options={"trim": 0.4}) == [2.0]


def test_task_arithmetic_scales_task_vectors(tmp_path: Path) -> None:
    found = vectors(tmp_path, "task_arithmetic", [2.0], [4.0], options={"scale": 2})
    assert found == [6.0]


def test_ties_trims_and_elects(tmp_path: Path) -> None:
    # kept: 4 and 3 of the first model, -8 and 6 of the second; elected signs: -, +, +
    found = vectors(tmp_path, "ties", [4.0, 3.0, 1.0], [-8.0, 1.0, 6.0], options={"density": 0.6})
    assert found == [-8.0, 3.0, 6.0]


def test_dare_keeps_the_mean(tmp_path: Path) -> None:
    rows = [[1.0] * 20_000, [1.0] * 19_999 + [2.0]]
    found = np.array(vectors(tmp_path, "dare_linear", *rows, options={"density": 0.25}))
    assert set(found[:-1]) == {0.0, 2.0, 4.0}
    assert found.mean() == pytest.approx(1.0, rel=0.05)
    other = vectors(tmp_path, "dare_linear", *rows, options={"density": 0.25, "seed": 1})
    assert other != found.tolist()
    agreed = vectors(tmp_path, "dare_ties", *rows, options={"density": 0.25})
    assert set(agreed[:-1]) == {0.0, 4.0}


def test_base_may_have_more_tensors_and_another_dtype(tmp_path: Path) -> None:
    rows = [{"w": np.array([2.0, 5.0], np.float32)}, {"w": np.array([4.0, 1.0], np.float32)}]
    base = {"w": np.array([1.0, 1.0], np.float16), "head": np.zeros(3)}
    found = mix(tmp_path, "task_arithmetic", rows, base, options={"scale": 2})["w"]
    assert (found.dtype, found.tolist()) == (np.float32, [5.0, 5.0])
    for other, reason in (
        ({"v": np.zeros(2)}, "it has no tensor 'w'"),
        ({"w": np.zeros(3)}, r"tensor 'w' is \[3\] there and \[2\] here"),
        ({"w": np.zeros(2, np.int32)}, "tensor 'w' is I32 there and F32 here"),
    ):
        with pytest.raises(UserError, match=f"cannot have started from .*: {reason}"):
            mix(tmp_path, "ties", rows, other)


@quick
@given(data=st.data())
def test_kth_largest_is_exact(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.floats(0, 1e300, allow_subnormal=True), min_size=1, max_size=50))
    k = data.draw(st.integers(1, len(values)))
    array = np.array(values)
    found = kth_largest(lambda: iter([array[:7].copy(), array[7:].copy()]), k)
    assert found == sorted(values, reverse=True)[k - 1]


@pytest.mark.parametrize("name", METHODS)
def test_method_gives_the_same_from_arrays_and_from_files(tmp_path: Path, name: str) -> None:
    rows = [np.random.default_rng(i).normal(size=5000) for i in range(3)]
    method = make_method(name)
    count = NUM_MODELS[name]
    files = mix(tmp_path, name, [{"w": r} for r in rows[:count]], {"w": rows[0] * 0.5})["w"]
    shares = method.shares(count, None)
    stack = ArrayStack("w", rows[:count], rows[0] * 0.5, shares, GRAIN)
    combine = method.prepare(stack)
    here = np.concatenate([combine(p).copy() for p in stack.pieces()])
    np.testing.assert_allclose(here, files, rtol=1e-12, atol=1e-15)


def test_values_of_options_and_weights_are_validated() -> None:
    with pytest.raises(UserError, match="method ties: density: Input should be less than or equal"):
        make_method("ties", {"density": "3"})
    with pytest.raises(UserError, match="needs the weights from which"):
        average([Path("a")], Path("b"), method=make_method("ties"))
