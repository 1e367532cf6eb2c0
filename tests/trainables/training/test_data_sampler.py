import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.training.data_sampler import Sampler, shares


@given(
    size=st.integers(1, 40),
    share=st.integers(1, 7),
    worlds=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    step=st.integers(0, 30),
)
@settings(max_examples=100, derandomize=True)
def test_sampler_ranks_partition_the_batch(
    size: int, share: int, worlds: int, seed: int, step: int
) -> None:
    batch = share * worlds
    alone = Sampler(size, batch, seed)
    ranks = [Sampler(size, batch, seed, rank, worlds).rows(step) for rank in range(worlds)]
    assert np.concatenate(ranks).tolist() == alone.rows(step).tolist()
    # earlier steps need not be computed
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
@settings(max_examples=100, derandomize=True)
def test_sampler_continues_with_another_number_of_ranks(
    size: int, worlds: list[int], steps: int, seed: int
) -> None:
    batch = math.lcm(*worlds)
    alone = Sampler(size, batch, seed)
    seen, step = [], 0
    for world in worlds:  # each continues at the next step
        ranks = [Sampler(size, batch, seed, rank, world) for rank in range(world)]
        for _ in range(steps):
            seen.append(np.concatenate([rank.rows(step) for rank in ranks]))
            step += 1
    whole = np.concatenate([alone.rows(s) for s in range(step)])
    assert np.concatenate(seen).tolist() == whole.tolist()


def test_sampler_refuses_a_batch_that_ranks_cannot_share() -> None:
    with pytest.raises(ValueError, match=r"batch_size 10 .* divide by their number, 4"):
        Sampler(100, 10, 0, rank=0, world_size=4)


@given(size=st.integers(0, 50), chunk=st.integers(1, 9), worlds=st.integers(1, 4))
@settings(max_examples=50, derandomize=True)
def test_shares_give_each_row_to_one_rank(size: int, chunk: int, worlds: int) -> None:
    parts = [p for rank in range(worlds) for p in shares(size, chunk, rank, worlds)]
    assert sorted(i for p in parts for i in range(size)[p]) == list(range(size))
