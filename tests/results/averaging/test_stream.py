"""Laws of the weighted mean from file to file."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, from_dtype
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from results.averaging import average
from search_spaces.errors import UserError
from tests.results.averaging.weights import FLOATS, GOOD, raw, save

quick = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


weights_of = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3)


def finite(dtype: str) -> st.SearchStrategy[NDArray[np.float64]]:
    """Values of this dtype (as float64), signed zeros and subnormals included."""
    if dtype == "bfloat16":
        words = arrays(np.uint16, 5).map(lambda u: (u.astype(np.uint32) << 16).view(np.float32))
        return words.filter(lambda v: bool(np.isfinite(v).all())).map(lambda v: v.astype(float))
    limit = min(1e300, float(np.finfo(dtype).max))  # differences of larger ones overflow
    elements = from_dtype(np.dtype(dtype), min_value=-limit, max_value=limit)
    return arrays(dtype, 5, elements=elements).map(lambda v: v.astype(float))


@pytest.mark.parametrize("dtype", FLOATS)
@quick
@given(data=st.data())
def test_mean_of_copies_is_that_model(tmp_path: Path, dtype: str, data: st.DataObject) -> None:
    source = save(tmp_path / "a", data.draw(finite(dtype)), dtype)
    average([source] * 3, tmp_path / "mean", data.draw(weights_of))
    assert raw(tmp_path / "mean") == raw(source)


@pytest.mark.parametrize("dtype", FLOATS)
@quick
@given(data=st.data())
def test_mean_does_not_depend_on_order(tmp_path: Path, dtype: str, data: st.DataObject) -> None:
    sources = [save(tmp_path / n, data.draw(finite(dtype)), dtype) for n in "abc"]
    pairs = list(zip(sources, data.draw(weights_of), strict=True))
    seen = set()
    for order in permutations(pairs):
        average([s for s, _ in order], tmp_path / "mean", [w for _, w in order])
        seen.add((tmp_path / "mean").read_bytes())
    assert len(seen) == 1


@pytest.mark.parametrize("dtype", FLOATS)
@quick
@given(data=st.data())
def test_mean_is_the_float64_mean_rounded_once(
    tmp_path: Path, dtype: str, data: st.DataObject
) -> None:
    values = [data.draw(finite(dtype)) for _ in range(3)]
    weights = data.draw(weights_of)
    sources = [save(tmp_path / n, v, dtype) for n, v in zip("abc", values, strict=True)]
    average(sources, tmp_path / "mean", weights)
    wide = np.asarray(values, np.longdouble)
    expected = np.average(wide, axis=0, weights=np.asarray(weights, np.longdouble))
    slack = np.abs(values).max(axis=0) * 1e-15  # of the float64 arithmetic
    low, high = (
        save(tmp_path / n, (expected + s).astype(float), dtype)
        for n, s in (("l", -slack), ("h", slack))
    )
    found = as_floats(tmp_path / "mean", dtype)
    assert (as_floats(low, dtype) <= found).all()
    assert (found <= as_floats(high, dtype)).all()


def as_floats(path: Path, dtype: str) -> NDArray[np.float64]:
    if dtype != "bfloat16":
        return load_file(path)["w"].astype(float)
    words = np.frombuffer(raw(path), np.uint16)
    return (words.astype(np.uint32) << 16).view(np.float32).astype(float)


def test_bfloat16_is_rounded_once(tmp_path: Path) -> None:
    # 1 + 2^-8 lies half way between two bfloat16 numbers. The mean is above it by less than
    # float32 resolves: rounding to float32 first would see a tie, and round down to 1.
    high = save(tmp_path / "a", np.array([1 + 2**-7]), "bfloat16")
    low = save(tmp_path / "b", np.array([1.0]), "bfloat16")
    average([high, low], tmp_path / "mean", [0.5 + 2**-30, 0.5 - 2**-30])
    assert raw(tmp_path / "mean") == raw(high)
    average([high, low], tmp_path / "mean", [0.5 - 2**-30, 0.5 + 2**-30])
    assert raw(tmp_path / "mean") == raw(low)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtype_sets_the_float_format(tmp_path: Path, dtype: str) -> None:
    values = np.array([0.1, -3.0, 1e-3])
    save_file({"w": values, "n": np.array([3])}, tmp_path / "a")
    average([tmp_path / "a"] * 2, tmp_path / "mean", dtype=dtype)
    alone = save(tmp_path / "expected", values, dtype)
    assert raw(tmp_path / "mean").endswith(raw(alone))
    with safe_open(tmp_path / "mean", "np") as f:
        assert f.get_slice("n").get_dtype() == "I64"


def test_dtype_refuses_values_that_it_cannot_hold(tmp_path: Path) -> None:
    save_file({"w": np.array([70000.0])}, tmp_path / "a")
    with pytest.raises(UserError, match="tensor 'w' overflows F16"):
        average([tmp_path / "a"], tmp_path / "mean", dtype="float16")
    save_file({"w": np.array([1.7e308])}, tmp_path / "b")
    save_file({"w": np.array([-1.7e308])}, tmp_path / "c")
    with pytest.raises(UserError, match="'w' overflows F64"):
        average([tmp_path / "b", tmp_path / "c"], tmp_path / "mean")
    with pytest.raises(UserError, match=r"no float format 'float8' .did you mean"):
        average([tmp_path / "a"], tmp_path / "mean", dtype="float8")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({**GOOD, "w": np.array([1.0, np.nan], np.float32)}, "'w' holds a NaN"),
        ({**GOOD, "w": np.array([1.0, np.inf], np.float32)}, "'w' holds a NaN or an"),
        ({**GOOD, "n": np.array([4])}, "'n' differs, and I64 is not averaged"),
        ({"w": GOOD["w"]}, "'n' is in one of them only"),
        ({**GOOD, "x": np.array([1.0])}, "'x' is in one of them only"),
        ({**GOOD, "w": np.array([1.0], np.float32)}, r"'w' is \[2\] in one and \[1\]"),
        ({**GOOD, "w": np.array([1.0, 2.0])}, "'w' is F32 in one and F64"),
    ],
)
def test_average_refuses_models_that_do_not_fit(
    tmp_path: Path, other: dict[str, NDArray[np.float64]], reason: str
) -> None:
    save_file(GOOD, tmp_path / "a")
    save_file(other, tmp_path / "b")
    with pytest.raises(UserError, match=reason):
        average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [2.0, -1.0], [float("nan"), 1.0], [np.inf]])
def test_average_refuses_invalid_weights(tmp_path: Path, weights: list[float]) -> None:
    save_file(GOOD, tmp_path / "a")
    with pytest.raises(UserError):
        average([tmp_path / "a"] * 2, tmp_path / "mean", weights)


@pytest.mark.parametrize("cut", [0, 5, 40, -1])
def test_average_refuses_a_torn_file(tmp_path: Path, cut: int) -> None:
    save_file(GOOD, tmp_path / "a")
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:cut])
    with pytest.raises(UserError, match="not a complete safetensors file"):
        average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
