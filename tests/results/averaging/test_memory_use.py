"""Averages are computed piece by piece, by several threads, from and to several files."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import results.averaging.stream
from results.averaging import average, make_method
from results.averaging.stack import GRAIN
from results.checkpoints.tensor_layout import weights_file
from search_spaces.errors import UserError
from tests.results.averaging.weights import save


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


def test_average_does_not_depend_on_the_piece_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = models(4)
    for i, model in enumerate(made):
        save_file(model, tmp_path / str(i), {"format": "pt", "trial": str(i)})
    sources = [tmp_path / str(i) for i in range(4)]
    average(sources, tmp_path / "whole")
    monkeypatch.setattr(results.averaging.stream, "MAX_PIECE", GRAIN)
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_average_does_not_depend_on_the_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    sources = [save(tmp_path / n, rng.normal(size=40 * GRAIN + 7), dtype) for n in "abc"]
    monkeypatch.setattr(results.averaging.stream, "MAX_PIECE", GRAIN)
    seen = set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(results.averaging.stream, "available_cpus", lambda n=threads: n)
        average(sources, tmp_path / "mean", [1, 2, 4])
        seen.add((tmp_path / "mean").read_bytes())
    assert len(seen) == 1
    bad = rng.normal(size=40 * GRAIN + 7)
    bad[-1] = np.inf
    save(tmp_path / "b", bad, dtype)
    with pytest.raises(UserError, match=r"b: tensor 'w' holds a NaN or an infinity"):
        average(sources, tmp_path / "mean")


def test_memory_does_not_grow_with_the_number_of_models(tmp_path: Path) -> None:
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
def test_method_stays_within_the_memory_limit(tmp_path: Path, name: str) -> None:
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


def test_average_reads_and_writes_shards(tmp_path: Path) -> None:
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


def test_transformers_loads_shards_of_an_average(tmp_path: Path) -> None:
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
