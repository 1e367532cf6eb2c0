import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.checkpointing.training_state import load_tree, save_tree
from trainables.common.data_sampler import Sampler, shares
from trainables.runtime.seeding import isolated_rng, rng_state, seed_everything, set_rng_state

CPU = torch.device("cpu")
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def make_tensor(dtype: torch.dtype, shape: list[int], seed: int) -> torch.Tensor:
    values = np.random.default_rng(seed).integers(0, 100, size=shape)
    return torch.from_numpy(np.asarray(values)).to(dtype)


tensors = st.builds(
    make_tensor,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 1000),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text() | tensors
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)  # tells -0.0 from 0.0, and NaN is NaN
    return bool(a == b)


@given(tree=trees)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_is_saved_is_what_is_loaded(
    tree: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    save_tree(folder, "state", tree)
    assert same(load_tree(folder, "state"), tree)


def test_tensors_that_share_memory_are_saved(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    save_tree(tmp_path, "s", {"whole": whole, "row": whole[0], "turned": whole.T})
    loaded = load_tree(tmp_path, "s")
    assert torch.equal(loaded["turned"], whole.T)
    assert torch.equal(loaded["row"], whole[0])


@pytest.mark.parametrize("bad", [{1.5: 0}, {True: 0}, {"a": object()}, [np.float64(1)], {1, 2}])
def test_anything_else_is_refused(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(TypeError, match="training state cannot hold"):
        save_tree(tmp_path, "s", bad)


def test_an_optimizer_comes_back_whole(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = torch.tensor([1.0, math.inf, -2.0])
    optimizer.step()
    save_tree(tmp_path, "s", optimizer.state_dict())
    other = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], lr=0.5)
    other.load_state_dict(load_tree(tmp_path, "s"))
    assert same(other.state_dict(), optimizer.state_dict())


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_generators_go_on_where_they_were(tmp_path: Path) -> None:
    with isolated_rng(3, 0, CPU):
        draw()
        save_tree(tmp_path, "rng", rng_state(CPU))
        expected = draw()
        draw()
        set_rng_state(load_tree(tmp_path, "rng"), CPU)
        assert draw() == expected


def test_a_seed_fixes_everything_and_ranks_differ() -> None:
    drawn = []
    with isolated_rng(0, 0, CPU):
        for seed, rank in [(1, 0), (1, 0), (1, 1), (2, 0)]:
            seed_everything(seed, rank)
            drawn.append(draw())
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3


def test_a_trial_leaves_the_process_as_it_was() -> None:
    def settings_now() -> tuple[Any, ...]:
        return (
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
        )

    before, state = settings_now(), rng_state(CPU)
    with isolated_rng(5, 0, CPU):
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        draw()
    assert settings_now() == before
    assert same(rng_state(CPU), state)


@given(
    size=st.integers(1, 40),
    share=st.integers(1, 7),
    worlds=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    step=st.integers(0, 30),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_ranks_partition_the_batch_of_one_stream(
    size: int, share: int, worlds: int, seed: int, step: int
) -> None:
    batch = share * worlds
    alone = Sampler(size, batch, seed)
    ranks = [Sampler(size, batch, seed, rank, worlds).rows(step) for rank in range(worlds)]
    assert np.concatenate(ranks).tolist() == alone.rows(step).tolist()
    # the position is the step alone: no step before it has to be taken
    stream = np.concatenate([alone.rows(s) for s in range(step + 1)])
    assert stream[-batch:].tolist() == Sampler(size, batch, seed).rows(step).tolist()
    for epoch in range(len(stream) // size):
        assert sorted(stream[epoch * size : (epoch + 1) * size]) == list(range(size))


@given(
    size=st.integers(1, 40),
    worlds=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    steps=st.integers(1, 5),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_no_sample_is_lost_or_seen_twice_while_the_ranks_change(
    size: int, worlds: list[int], steps: int, seed: int
) -> None:
    batch = math.lcm(*worlds)
    alone = Sampler(size, batch, seed)
    seen, step = [], 0
    for world in worlds:  # each goes on from the step that the one before it came to
        ranks = [Sampler(size, batch, seed, rank, world) for rank in range(world)]
        for _ in range(steps):
            seen.append(np.concatenate([rank.rows(step) for rank in ranks]))
            step += 1
    whole = np.concatenate([alone.rows(s) for s in range(step)])
    assert np.concatenate(seen).tolist() == whole.tolist()


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_size 10 .* divide by their number, 4"):
        Sampler(100, 10, 0, rank=0, world_size=4)


@given(size=st.integers(0, 50), chunk=st.integers(1, 9), worlds=st.integers(1, 4))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_every_row_is_judged_by_exactly_one_rank(size: int, chunk: int, worlds: int) -> None:
    parts = [p for rank in range(worlds) for p in shares(size, chunk, rank, worlds)]
    assert sorted(i for p in parts for i in range(size)[p]) == list(range(size))
