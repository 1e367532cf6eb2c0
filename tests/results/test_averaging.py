"""Laws of the mean of weights."""

import json
import tracemalloc
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, from_dtype
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import results.averaging.stream
from results.averaging import average, make_method
from results.averaging.stack import GRAIN
from results.tensors import weights_file
from search_spaces.errors import UserError

FLOATS = ("float64", "float32", "float16", "bfloat16")
quick = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
weights_of = st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3)


def finite(dtype: str) -> st.SearchStrategy[NDArray[np.float64]]:
    """Values of this dtype (as float64), signed zeros and subnormals included."""
    if dtype == "bfloat16":
        words = arrays(np.uint16, 5).map(lambda u: (u.astype(np.uint32) << 16).view(np.float32))
        return words.filter(lambda v: bool(np.isfinite(v).all())).map(lambda v: v.astype(float))
    limit = min(1e300, float(np.finfo(dtype).max))  # differences of larger ones overflow
    elements = from_dtype(np.dtype(dtype), min_value=-limit, max_value=limit)
    return arrays(dtype, 5, elements=elements).map(lambda v: v.astype(float))


def save(path: Path, values: NDArray[np.float64], dtype: str) -> Path:
    """One tensor 'w'; bfloat16 by torch, which rounds by itself."""
    if dtype != "bfloat16":
        save_file({"w": values.astype(dtype)}, path)
        return path
    import torch
    from safetensors.torch import save_file as save_torch

    save_torch({"w": torch.from_numpy(values).to(torch.bfloat16)}, path)
    return path


def raw(path: Path) -> bytes:
    """The bytes of tensor 'w'."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little") :]


@pytest.mark.parametrize("dtype", FLOATS)
@quick
@given(data=st.data())
def test_the_mean_of_one_model_many_times_is_that_model(
    tmp_path: Path, dtype: str, data: st.DataObject
) -> None:
    source = save(tmp_path / "a", data.draw(finite(dtype)), dtype)
    average([source] * 3, tmp_path / "mean", data.draw(weights_of))
    assert raw(tmp_path / "mean") == raw(source)


@pytest.mark.parametrize("dtype", FLOATS)
@quick
@given(data=st.data())
def test_the_order_of_the_sources_does_not_matter(
    tmp_path: Path, dtype: str, data: st.DataObject
) -> None:
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
def test_the_mean_is_the_float64_mean_rounded_once(
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
    # 1 + 2^-8 lies half way between two bfloat16 numbers; the mean is a little above it, by less
    # than float32 can tell: rounding over float32 would see a tie and go down to 1
    high = save(tmp_path / "a", np.array([1 + 2**-7]), "bfloat16")
    low = save(tmp_path / "b", np.array([1.0]), "bfloat16")
    average([high, low], tmp_path / "mean", [0.5 + 2**-30, 0.5 - 2**-30])
    assert raw(tmp_path / "mean") == raw(high)
    average([high, low], tmp_path / "mean", [0.5 - 2**-30, 0.5 + 2**-30])
    assert raw(tmp_path / "mean") == raw(low)


def models(count: int) -> list[dict[str, NDArray[Any]]]:
    """Models with tensors of every kind, one of them longer than the smallest piece."""
    rng = np.random.default_rng(0)
    return [
        {
            "long": rng.normal(size=(3, GRAIN - 7)).astype(np.float32),
            "scalar": np.array(rng.normal()),
            "empty": np.zeros((0, 3), np.float16),
            "count": np.arange(2 * GRAIN),
            "norm.num_batches_tracked": np.array(100 * i),
        }
        for i in range(count)
    ]


def test_what_comes_out_does_not_depend_on_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = models(4)
    for i, model in enumerate(made):
        save_file(model, tmp_path / str(i), {"format": "pt", "trial": str(i)})
    sources = [tmp_path / str(i) for i in range(4)]
    average(sources, tmp_path / "whole")
    monkeypatch.setattr(results.averaging.stream, "_CACHED", GRAIN)
    average(sources, tmp_path / "pieces")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "pieces").read_bytes()
    found = load_file(tmp_path / "whole")
    for name in ("long", "scalar"):
        expected = np.mean([m[name].astype(float) for m in made], axis=0)
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-9)
        assert found[name].dtype == made[0][name].dtype
    assert found["empty"].shape == (0, 3)
    assert (found["count"] == np.arange(2 * GRAIN)).all()
    assert found["norm.num_batches_tracked"] == 300
    with safe_open(tmp_path / "whole", "np") as f:
        assert f.metadata() == {"format": "pt"}
    assert not list(tmp_path.glob(".*"))


def test_too_little_memory_is_told(tmp_path: Path) -> None:
    save_file(GOOD, tmp_path / "a")
    with pytest.raises(UserError, match=r"2 models by method weighted needs at least 0\.3 MB"):
        average([tmp_path / "a"] * 2, tmp_path / "mean", max_memory=1000)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_number_of_threads_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    sources = [save(tmp_path / n, rng.normal(size=40 * GRAIN + 7), dtype) for n in "abc"]
    monkeypatch.setattr(results.averaging.stream, "_CACHED", GRAIN)
    seen = set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(results.averaging.stream, "processors", lambda n=threads: n)
        average(sources, tmp_path / "mean", [1, 2, 4])
        seen.add((tmp_path / "mean").read_bytes())
    assert len(seen) == 1
    bad = rng.normal(size=40 * GRAIN + 7)
    bad[-1] = np.inf
    save(tmp_path / "b", bad, dtype)
    with pytest.raises(UserError, match=r"b: tensor 'w' holds a NaN or an infinity"):
        average(sources, tmp_path / "mean")


def test_memory_is_flat_in_the_number_of_models(tmp_path: Path) -> None:
    size, limit = 4 << 20, 4 << 20  # models of 16 MiB in 4 MiB
    for i in range(2):
        save_file({"w": np.full(size, i, np.float32)}, tmp_path / str(i))
    peaks = []
    for count in (2, 16):
        sources = [tmp_path / str(i % 2) for i in range(count)]
        tracemalloc.start()
        average(sources, tmp_path / "mean", max_memory=limit, digests=[str(i) for i in range(16)])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < limit + (1 << 20)
    assert peaks[1] - peaks[0] < 1 << 16


@pytest.mark.parametrize("name", ["median", "ties", "dare_ties", "slerp"])
def test_every_method_stays_within_its_memory(tmp_path: Path, name: str) -> None:
    limit = 4 << 20
    rng = np.random.default_rng(0)
    for i in range(3):
        save_file({"w": rng.normal(size=3 << 20).astype(np.float32)}, tmp_path / str(i))
    sources = [tmp_path / str(i) for i in range(2)]
    tracemalloc.start()
    average(
        sources,
        tmp_path / "mean",
        method=make_method(name),
        base=tmp_path / "2",
        max_memory=limit,
        digests=["a", "b"],
    )
    assert tracemalloc.get_traced_memory()[1] < limit + (2 << 20)  # the histogram is 0.5 MiB
    tracemalloc.stop()


def test_shards_in_and_out(tmp_path: Path) -> None:
    made = models(3)
    for i, model in enumerate(made):
        save_file(model, tmp_path / f"{i}.safetensors", {"format": "pt"})
    sources = [tmp_path / f"{i}.safetensors" for i in range(3)]
    average(sources, tmp_path / "one" / "model.safetensors")
    split = average(sources, tmp_path / "many" / "model.safetensors", max_shard=66_000)
    names = [f"model-{i:05d}-of-00002.safetensors" for i in (1, 2)]
    assert [f.name for f in split.files] == names
    whole = load_file(tmp_path / "one" / "model.safetensors")
    parts = {k: v for file in split.files for k, v in load_file(file).items()}
    assert parts.keys() == whole.keys()
    assert all((parts[k] == whole[k]).all() for k in whole)
    again = [weights_file(tmp_path / "many")] * 2
    assert again[0].name == "model.safetensors.index.json"
    average(again, tmp_path / "same" / "model.safetensors")
    same = load_file(tmp_path / "same" / "model.safetensors")
    assert all((same[k] == whole[k]).all() for k in whole)
    index = json.loads(again[0].read_text())
    index["weight_map"]["long"] = "../elsewhere.safetensors"
    again[0].write_text(json.dumps(index))
    with pytest.raises(UserError, match="a shard outside of the folder"):
        average(again, tmp_path / "mean")


def test_transformers_reads_shards_of_an_average(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(small)
    model.save_pretrained(tmp_path / "a")
    small.save_pretrained(tmp_path / "mean")
    source = tmp_path / "a" / "model.safetensors"
    average([source] * 3, tmp_path / "mean" / "model.safetensors", [1, 2, 3], max_shard=4000)
    assert not (tmp_path / "mean" / "model.safetensors").exists()
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "mean")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    for name, tensor in model.state_dict().items():
        assert (loaded.state_dict()[name] == tensor).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_format_that_is_asked_for(tmp_path: Path, dtype: str) -> None:
    values = np.array([0.1, -3.0, 1e-3])
    save_file({"w": values, "n": np.array([3])}, tmp_path / "a")
    average([tmp_path / "a"] * 2, tmp_path / "mean", dtype=dtype)
    alone = save(tmp_path / "expected", values, dtype)
    assert raw(tmp_path / "mean").endswith(raw(alone))
    with safe_open(tmp_path / "mean", "np") as f:
        assert f.get_slice("n").get_dtype() == "I64"


def test_values_that_the_asked_format_cannot_hold(tmp_path: Path) -> None:
    save_file({"w": np.array([70000.0])}, tmp_path / "a")
    with pytest.raises(UserError, match="tensor 'w' overflows F16"):
        average([tmp_path / "a"], tmp_path / "mean", dtype="float16")
    with pytest.raises(UserError, match=r"no float format 'float8' .did you mean"):
        average([tmp_path / "a"], tmp_path / "mean", dtype="float8")


GOOD = {"w": np.array([1.0, 2.0], np.float32), "n": np.array([3])}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"w": np.array([1.0, np.nan], np.float32), "n": np.array([3])}, "'w' holds a NaN"),
        ({"w": np.array([1.0, np.inf], np.float32), "n": np.array([3])}, "'w' holds a NaN or an"),
        ({"w": np.array([1.0, 2.0], np.float32), "n": np.array([4])}, "'n' differs, and I64 has"),
        ({"w": np.array([1.0, 2.0], np.float32)}, "'n' is in one of them only"),
        ({**GOOD, "x": np.array([1.0])}, "'x' is in one of them only"),
        ({"w": np.array([1.0], np.float32), "n": np.array([3])}, r"'w' is \[2\] in one and \[1\]"),
        ({"w": np.array([1.0, 2.0]), "n": np.array([3])}, "'w' is F32 in one and F64"),
    ],
)
def test_refused(tmp_path: Path, other: dict[str, NDArray[np.float64]], reason: str) -> None:
    save_file(GOOD, tmp_path / "a")
    save_file(other, tmp_path / "b")
    with pytest.raises(UserError, match=reason):
        average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("weights", [[1.0], [0.0, 0.0], [2.0, -1.0], [float("nan"), 1.0], [np.inf]])
def test_weights_that_make_no_mean(tmp_path: Path, weights: list[float]) -> None:
    save_file(GOOD, tmp_path / "a")
    with pytest.raises(UserError):
        average([tmp_path / "a"] * 2, tmp_path / "mean", weights)


def test_a_zero_weight_leaves_a_model_out(tmp_path: Path) -> None:
    save_file({"w": np.array([1.0])}, tmp_path / "a")
    save_file({"w": np.array([3.0])}, tmp_path / "b")
    average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean", [0, 5])
    assert load_file(tmp_path / "mean")["w"] == [3.0]


def test_means_too_large_for_the_arithmetic_are_refused(tmp_path: Path) -> None:
    save_file({"w": np.array([1.7e308])}, tmp_path / "a")
    save_file({"w": np.array([-1.7e308])}, tmp_path / "b")
    with pytest.raises(UserError, match="'w' overflows F64"):
        average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")


@pytest.mark.parametrize("cut", [0, 5, 40, -1])
def test_a_torn_file_is_refused(tmp_path: Path, cut: int) -> None:
    save_file(GOOD, tmp_path / "a")
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:cut])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        average([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
